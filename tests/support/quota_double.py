"""A governor for tests: grants by command, and remembers all that it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from luftpause.kit.quota_port import Cost, Gone, Granted, NotNow, Refused, Released, Renewed, Reported
from luftpause.scheduler.quota.headers import LimitKind, observe

Decide = Callable[[dict[str, Any]], Awaitable[Granted | NotNow | Refused]]


class QuotaDouble:
    """A `QuotaPort`. What it is asked stands in `wishes`, what it is told in `told` as (what, want, further facts).

    What is a refusal the real parser says; `retry_seconds` is what every limited call hears.
    """

    def __init__(self, decide: Decide | None = None, retry_seconds: float | None = 0.05, lease_seconds: float = 60.0) -> None:
        self.decide = decide or self.grant
        self.retry_seconds = retry_seconds
        self.lease_seconds = lease_seconds
        self.wishes: list[dict[str, Any]] = []
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.waiting = 0  # wishes without an answer
        self.withdrawn = 0
        self.failure: Exception | None = None  # what every call raises
        self._fence = 0
        self._changed = asyncio.Event()

    async def grant(self, wish: dict[str, Any]) -> Granted:
        self._fence += 1
        return Granted(wish["want"], self._fence, self.lease_seconds)

    def kinds(self) -> list[str]:
        return [what for what, _, _ in self.told]

    async def until(self, what: str, count: int = 1, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Wait until it was told this so often."""
        async with asyncio.timeout(seconds):
            while self.kinds().count(what) < count:
                self._changed.clear()
                await self._changed.wait()
        return [facts for each, _, facts in self.told if each == what]

    async def until_asked(self, count: int, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while len(self.wishes) < count:
                self._changed.clear()
                await self._changed.wait()

    def _tell(self, what: str, want: str, **facts: Any) -> None:
        self.told.append((what, want, facts))
        self._changed.set()
        if self.failure is not None:
            raise self.failure

    # ---- QuotaPort

    async def reserve(
        self,
        target: str,
        want: str,
        *,
        caller: str,
        priority: int,
        cost: Cost | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0.0,
        retry: bool = False,
    ) -> Granted | NotNow | Refused:
        if self.failure is not None:
            raise self.failure
        wish = {
            "target": target, "want": want, "caller": caller, "priority": priority, "cost": cost,
            "wait_seconds": wait_seconds, "retry": retry,
        }  # fmt: skip
        self.wishes.append(wish)
        self._changed.set()
        self.waiting += 1
        try:
            return await self.decide(wish)
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise
        finally:
            self.waiting -= 1

    async def report(
        self,
        target: str,
        want: str,
        fence: int,
        *,
        status: int | None,
        headers: Mapping[str, str],
        body_excerpt: str = "",
        actual: Cost | None = None,
    ) -> Reported | Refused:
        self._tell("report", want, fence=fence, status=status, headers=dict(headers), body=body_excerpt)
        seen = observe(status or 0, headers, body_excerpt, 0.0)
        helps = seen.limited and seen.kind is not LimitKind.CREDIT
        return Reported(True, seen.limited, seen.kind.value if seen.kind else None, self.retry_seconds if helps else None)

    async def renew(self, target: str, want: str, fence: int) -> Renewed | Gone | Refused:
        self._tell("renew", want, fence=fence)
        return Renewed(self.lease_seconds)

    async def release(self, target: str, want: str, fence: int) -> Released | Gone | Refused:
        self._tell("release", want, fence=fence)
        return Released()

    async def observe(self, target: str, *, status: int, headers: Mapping[str, str], body_excerpt: str = "") -> Reported | Refused:
        self._tell("observe", "", status=status, headers=dict(headers))
        return Reported(False)

    async def view(self) -> bytes:
        return b'{"targets":[]}'

    async def events(self) -> AsyncIterator[bytes]:
        if self.failure is not None:
            yield b""
