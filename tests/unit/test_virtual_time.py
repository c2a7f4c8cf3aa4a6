"""Does virtual time pass in order, and at once?"""

import asyncio
import time

import pytest

from tests.support.virtual_time import virtual_time


@virtual_time
async def test_an_hour_passes_at_once_and_everything_in_it_in_order() -> None:
    began, clock, seen = time.monotonic(), asyncio.get_running_loop().time, list[tuple[str, float]]()

    async def later(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, clock()))

    await asyncio.gather(later("third", 3600), later("first", 0.5), later("second", 60))
    assert [name for name, _ in seen] == ["first", "second", "third"]
    assert [at for _, at in seen] == pytest.approx([0.5, 60, 3600])
    assert time.monotonic() - began < 60
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 10)
    assert clock() == pytest.approx(3610)


def test_what_fails_in_it_fails() -> None:
    @virtual_time
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
