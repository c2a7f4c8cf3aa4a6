"""How is a governor in this process asked?"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from enum import Enum
from math import inf
from random import Random
from typing import Any, Final, Literal

import msgspec

from luftpause.kit.quota_bounds import EXCERPT_CHARS_MAX
from luftpause.kit.quota_port import Cost, Enabled, Gone, Granted, NotNow, Refused, Released, Renewed, Reported
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.places import Places, standing_of
from luftpause.scheduler.governor.view import quotas
from luftpause.scheduler.quota import headers as quota_headers
from luftpause.scheduler.quota.advice import advice
from luftpause.scheduler.quota.decisions import Decision, Grant, Refuse, RefuseCode
from luftpause.scheduler.quota.events import AnswerReported, LeaseReleased, LeaseRenewed, LimitsObserved, QuotaWanted, TargetEnabled
from luftpause.scheduler.quota.headers import Observation
from luftpause.scheduler.quota.model import STANDING, Lease
from luftpause.scheduler.quota.profiles import call_cost

EVENTS_WAITING_MAX: Final = 1_000  # of one listener; beyond it the oldest are left out
SETTLING_SECONDS: Final = 0.5  # until a shared store has agreed, or not
ASK_AGAIN_SECONDS_MIN: Final = 0.01  # P0's window begins at 0: nobody asks in a circle
ASK_AGAIN_SECONDS_MAX: Final = 3_600.0  # where no wait helps
WAIT_SECONDS_TOLD_MAX: Final = 31 * 86_400.0  # whatever a provider says
WAITING, BLOCKED, OUT_OF_CREDIT = "waiting", "blocked", "out_of_credit"
MOMENTS: Final = frozenset({"until", "expires"})
SECRET: Final = frozenset({"want", "fence"})
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class LocalPort:
    """The `QuotaPort` of a governor in this process. `epoch`: seconds since 1970, for dates in headers."""

    def __init__(
        self,
        governor: Governor,
        *,
        lease_seconds: float,
        wait_seconds_max: float = 60.0,
        epoch: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self._governor = governor
        self._lease_seconds = lease_seconds
        self._wait_seconds_max = wait_seconds_max
        self._epoch = epoch
        self._random = random or Random()  # noqa: S311 - spreads retries
        self._polls: Counter[tuple[str, str]] = Counter()  # of a want that are waiting
        self._places = Places()

    # ---- reserve

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
        known = self._governor.state.targets.get(target)
        if known is None:
            return self._unknown(target)
        units = tuple(cost.items()) if cost is not None else call_cost(known.spec.profile)
        lease = self._lease_seconds if lease_seconds is None else lease_seconds
        now, wait = self._governor.now, min(wait_seconds, self._wait_seconds_max)
        standing = self._places.take((target, want), now)
        answer = await self._answer(QuotaWanted(now, target, want, caller, priority, units, lease, retry, standing), wait)
        match answer:
            case Grant():
                return Granted(want, answer.fence, max(0.0, answer.expires - self._governor.now), answer.level)
            case Refuse():
                if standing is not None:  # the queue may have been full for a moment
                    self._places.keep((target, want), standing, now, wait)
                return Refused(answer.code.value, answer.message)
            case _:
                return answer

    async def _answer(self, event: QuotaWanted, wait_seconds: float) -> Grant | Refuse | NotNow:
        """Whoever is the last to stop waiting for a want withdraws it; asked again soon it goes back to where it stood."""
        key = (event.target, event.want)
        answered: asyncio.Future[Grant | Refuse] = asyncio.get_running_loop().create_future()

        def answer(decision: Grant | Refuse) -> None:
            if not answered.done():
                answered.set_result(decision)

        self._polls[key] += 1
        taken, again_seconds = False, wait_seconds
        try:
            self._governor.want(event, answer)
            if not answered.done() and wait_seconds > 0:
                await asyncio.wait({answered}, timeout=wait_seconds)
            if self._governor.settling(*key):
                await asyncio.wait({answered}, timeout=SETTLING_SECONDS)
            taken = True
            if answered.done():
                return answered.result()
            not_now = self._not_now(event.target, event.priority, event.want)
            again_seconds = max(again_seconds, not_now.retry_seconds)
            return not_now
        finally:
            self._polls[key] -= 1
            if not self._polls[key]:
                del self._polls[key]
                self._leave(key, answered, again_seconds, taken=taken)

    def _leave(self, key: tuple[str, str], answered: "asyncio.Future[Grant | Refuse]", again_seconds: float, *, taken: bool) -> None:
        if not answered.done():
            if (standing := standing_of(self._governor.state, key)) is not None:
                self._places.keep(key, standing, self._governor.now, again_seconds)
            self._governor.withdraw(*key)
        elif not taken and isinstance(decision := answered.result(), Grant):
            self._governor.post(LeaseReleased(self._governor.now, *key, decision.fence))

    def _not_now(self, target: str, priority: int, want: str = "") -> NotNow:
        """Its class's window (pattern 6) after the end of the block and of the line before it, or from now where there is none."""
        state, now = self._governor.state, self._governor.now
        waiter = state.targets[target].waiters.get(want)
        scopes, number = (waiter.scopes, waiter.number) if waiter is not None else (None, inf)
        seconds = advice(state, target, priority, self._random.random(), now=now, scopes=scopes, number=number)
        if seconds == inf:
            return NotNow(ASK_AGAIN_SECONDS_MAX, OUT_OF_CREDIT)
        seconds = min(max(seconds, ASK_AGAIN_SECONDS_MIN), WAIT_SECONDS_TOLD_MAX)
        return NotNow(seconds, BLOCKED if state.targets[target].breaker.mode in STANDING else WAITING)

    # ---- answers

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
        if target not in self._governor.state.targets:
            return self._unknown(target)
        seen = self._observed(status, headers, body_excerpt)
        lease = self._lease(target, want, fence)
        event = AnswerReported(
            self._governor.now,
            target,
            want,
            fence,
            outcome(status, seen),
            actual=tuple((actual or {}).items()),
            samples=seen.samples,
            wait_seconds=seen.wait_seconds,
            kind=seen.kind,
        )
        self._governor.post(event)
        return self._reported(target, seen, settled=lease is not None, priority=lease.priority if lease is not None else 1)

    async def renew(self, target: str, want: str, fence: int) -> Renewed | Gone | Refused:
        if target not in self._governor.state.targets:
            return self._unknown(target)
        now = self._governor.now
        self._governor.post(LeaseRenewed(now, target, want, fence))
        lease = self._lease(target, want, fence)
        return Renewed(lease.expires - now) if lease is not None else Gone()

    async def release(self, target: str, want: str, fence: int) -> Released | Gone | Refused:
        if target not in self._governor.state.targets:
            return self._unknown(target)
        lease = self._lease(target, want, fence)
        self._governor.post(LeaseReleased(self._governor.now, target, want, fence))
        return Released() if lease is not None else Gone()

    async def observe(self, target: str, *, status: int, headers: Mapping[str, str], body_excerpt: str = "") -> Reported | Refused:
        if target not in self._governor.state.targets:
            return self._unknown(target)
        seen = self._observed(status, headers, body_excerpt)
        self._governor.post(LimitsObserved(self._governor.now, target, seen.samples, seen.limited, seen.wait_seconds, seen.kind))
        return self._reported(target, seen, settled=False, priority=1)

    async def enable(self, target: str) -> Enabled | Refused:
        if target not in self._governor.state.targets:
            return self._unknown(target)
        self._governor.post(TargetEnabled(self._governor.now, target))
        return Enabled()

    def _observed(self, status: int | None, headers: Mapping[str, str], body_excerpt: str) -> Observation:
        if status is None:
            return Observation()
        return quota_headers.observe(status, headers, body_excerpt[:EXCERPT_CHARS_MAX], self._epoch())

    def _reported(self, target: str, seen: Observation, *, settled: bool, priority: int) -> Reported:
        retry = self._not_now(target, priority).retry_seconds if seen.limited else None
        return Reported(settled, seen.kind is not None, seen.kind.value if seen.kind is not None else None, retry)

    def _lease(self, target: str, want: str, fence: int) -> Lease | None:
        lease = self._governor.state.targets[target].leases.get(want)
        return lease if lease is not None and lease.fence == fence else None

    def _unknown(self, target: str) -> Refused:
        known = ", ".join(sorted(self._governor.state.targets)) or "none; configure one under governor.targets"
        return Refused(RefuseCode.UNKNOWN_TARGET.value, f"no target is called {target!r}; known: {known}")

    # ---- looking on

    async def view(self) -> bytes:
        return msgspec.json.encode(quotas(self._governor))

    async def events(self) -> AsyncGenerator[bytes, None]:
        waiting: asyncio.Queue[Decision] = asyncio.Queue(EVENTS_WAITING_MAX)

        def listen(decision: Decision) -> None:
            if waiting.full():
                with suppress(asyncio.QueueEmpty):
                    waiting.get_nowait()
            waiting.put_nowait(decision)

        stop = self._governor.listen(listen)
        try:
            while True:
                yield encoded(await waiting.get(), self._governor.now)
        finally:
            stop()


def outcome(status: int | None, seen: Observation) -> Literal["ok", "limited", "error"]:
    """What an answer says about the limit: a refusal by quota, nothing (it failed), or that there was room."""
    if seen.limited or seen.kind is not None:
        return "limited"
    return "error" if status is None or status >= 500 else "ok"


def encoded(decision: Decision, now: float) -> bytes:
    """For those who look on: `event`, its fields, moments as seconds from now. Not what would let them end another's lease."""
    fields: dict[str, Any] = {"event": _CAPITAL.sub("_", type(decision).__name__).lower()}
    for name in decision.__struct_fields__:
        value = getattr(decision, name)
        if name in MOMENTS:
            fields[f"{name}Seconds"] = round(max(0.0, value - now), 3) if value < inf else None
        elif name not in SECRET and value is not None:
            fields[name] = value.value if isinstance(value, Enum) else value
    return msgspec.json.encode(fields)
