"""When does an `await` return?"""

import asyncio
from collections.abc import Collection, Sequence

from luftpause.runtime.entries import Entry, Waiter


async def ended(entries: Sequence[Entry], count: int, timeout_s: float | None, approvals_known: Collection[str] | None = None) -> None:
    """Until `count` of these unfinished runs have ended, one needs an approval that isn't known (None: no matter), or time is over."""
    if not count:
        return
    waiter = Waiter(count, approvals_known)
    for entry in entries:
        entry.waiters.add(waiter)
        waiter.look(entry)
    try:
        async with asyncio.timeout(timeout_s):
            await waiter.done
    except TimeoutError:
        pass
    finally:
        for entry in entries:
            entry.waiters.discard(waiter)
