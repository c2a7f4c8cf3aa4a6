"""How do turns that need quota reach the governor, and how does what it grants come back to the core?

The core's wishes become the governor's, its answers the core's events. What dataplanes tell of an answer waits here until the turn's
place has ended; then the lease is settled with both.
"""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final, Literal, TypeVar

from msgspec import Struct

from luftpause.scheduler.core.decisions import CancelReserve, Outcome, ReserveQuota, SettleQuota
from luftpause.scheduler.core.events import Event, QuotaDeferred, QuotaGranted, QuotaRefused
from luftpause.scheduler.core.model import State, TurnPhase
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.quota import headers
from luftpause.scheduler.quota.advice import advice, earliest
from luftpause.scheduler.quota.decisions import Blocked, Decision, Grant, Refuse, RefuseCode
from luftpause.scheduler.quota.events import AnswerReported, LeaseReleased, LeaseRenewed, QuotaWanted
from luftpause.scheduler.quota.headers import LimitKind, Observation
from luftpause.scheduler.quota.model import Waiter
from luftpause.scheduler.quota.profiles import turn_cost
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold, Told

BEAT_SECONDS: Final = 1.0
LAST_SECONDS: Final = 2.5  # of a turn's time to wait
RENEWALS: Final = 4  # of a lease in the time for which it is granted
TOLD_MAX: Final = 10_000  # answers of turns whose end was not told yet
HOPELESS_MAX: Final = 1_000
BLOCK_SECONDS_MIN: Final = 5.0  # whoever waits is told of a block that lasts longer
WAIT_SECONDS_MAX: Final = 86_400.0  # that is told of one that no wait ends
STATUS: Final = {
    RefuseCode.TOO_LARGE: (413, 0.0),
    RefuseCode.QUEUE_FULL: (503, 5.0),
    RefuseCode.OUT_OF_CREDIT: (402, 0.0),
    RefuseCode.RETRY_BUDGET: (429, 10.0),
    RefuseCode.UNKNOWN_TARGET: (503, 5.0),
}

K = TypeVar("K")
V = TypeVar("V")


class Wish(Struct, frozen=True, gc=False):
    decision: ReserveQuota
    target: str


class QuotaDesk:
    """Everything happens on the host's loop. `state`: of the core; `post`: takes its events; `epoch`: seconds since 1970."""

    def __init__(
        self,
        governor: Governor,
        *,
        state: Callable[[], State],
        post: Callable[[Event], None],
        now: Callable[[], float],
        lease_seconds: float,
        epoch: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self._governor = governor
        self._state = state
        self._post = post
        self._now = now
        self._lease_seconds = lease_seconds
        self._epoch = epoch
        self._random = random or Random()  # noqa: S311 - spreads retries
        self._wishes: dict[str, Wish] = {}  # by want
        self._targets: dict[str, str] = {}  # replica -> target, as last used
        self._told: dict[tuple[str, int], AnswerTold] = {}
        self._hopeless: dict[str, str] = {}  # turns that are too large for their account -> why
        self._unlisten = governor.listen(self._heard)

    # ---- from the core

    def carry_out(self, decision: ReserveQuota | CancelReserve | SettleQuota) -> None:
        if isinstance(decision, ReserveQuota):
            self._reserve(decision)
        elif isinstance(decision, CancelReserve):
            wish = self._wishes.pop(want_of(decision.turn, decision.attempt, decision.replica), None)
            if wish is not None:
                self._governor.withdraw(wish.target, want_of(decision.turn, decision.attempt, decision.replica))
        else:
            self._settle(decision)

    def _reserve(self, asked: ReserveQuota) -> None:
        want, target = want_of(asked.turn, asked.attempt, asked.replica), self._target(asked.replica)
        if (why := self._hopeless.pop(asked.turn, "")) and asked.retry:
            self._post(QuotaRefused(self._now(), asked.turn, asked.attempt, asked.replica, 413, "quota_too_large", why))
            return
        self._wishes[want] = Wish(asked, target)
        cost = turn_cost(max(1, asked.prompt_tokens), max(1, asked.answer_tokens))
        event = QuotaWanted(
            self._governor.now, target, want, asked.caller, asked.priority, cost, self._lease_seconds, retry=asked.retry
        )  # fmt: skip
        self._governor.want(event, self._answered)
        if want in self._wishes:
            self._post(self._deferred(asked, target))

    def _deferred(self, asked: ReserveQuota, target: str) -> QuotaDeferred:
        """It is not granted before the end of a block, nor before those who stand in front of it, as far as that is known."""
        waiter, now = self._waiter(asked, target), self._governor.now
        wait = 0.0
        if waiter is not None:
            state = self._governor.state
            wait = earliest(state, target, waiter.priority, now=now, scopes=waiter.scopes, number=waiter.number)
        return QuotaDeferred(self._now(), asked.turn, asked.attempt, asked.replica, min(wait, WAIT_SECONDS_MAX))

    def _waiter(self, asked: ReserveQuota, target: str) -> Waiter | None:
        known = self._governor.state.targets.get(target)
        return known.waiters.get(want_of(asked.turn, asked.attempt, asked.replica)) if known is not None else None

    def _settle(self, ended: SettleQuota) -> None:
        target, want = self._target(ended.replica), want_of(ended.turn, ended.attempt, ended.replica)
        told = self._told.pop((ended.turn, ended.attempt), None)
        if ended.outcome is Outcome.UNUSED:
            self._governor.post(LeaseReleased(self._governor.now, target, want, ended.fence))
        elif ended.outcome is not Outcome.LOST:  # else it expires, and is charged, unless its dataplane still tells
            self._report(target, want, ended, told)

    def _report(self, target: str, want: str, ended: SettleQuota | LeaseTold, told: AnswerTold | None) -> None:
        seen = headers.observe(told.status, told.headers, told.excerpt, self._epoch()) if told is not None else Observation()
        actual = ()
        if ended.prompt_tokens is not None and ended.answer_tokens is not None:
            actual = turn_cost(max(1, ended.prompt_tokens), max(1, ended.answer_tokens))
        self._governor.post(
            AnswerReported(
                self._governor.now, target, want, ended.fence, _outcome(ended.outcome, seen, told), actual, seen.samples,
                seen.wait_seconds, seen.kind,
            )
        )  # fmt: skip
        if seen.kind is LimitKind.TOO_LARGE:
            _bounded(self._hopeless, HOPELESS_MAX)[ended.turn] = "its provider says that this request alone is above the limit; shorten it"

    # ---- from the governor

    def _answered(self, decision: Grant | Refuse) -> None:
        wish = self._wishes.pop(decision.want, None)
        if wish is None:  # never after a withdrawal; but a lease must not be lost
            if isinstance(decision, Grant):
                self._governor.post(LeaseReleased(self._governor.now, decision.target, decision.want, decision.fence))
            return
        asked = wish.decision
        if isinstance(decision, Grant):
            cut = decision.cut
            share, least = (1.0, 0) if cut is None else (cut.max_tokens_factor, cut.max_tokens_min)
            granted = QuotaGranted(
                self._now(), asked.turn, asked.attempt, asked.replica, decision.fence, decision.level, share, least
            )  # fmt: skip
            self._post(granted)
        elif decision.code is not RefuseCode.TARGET_REMOVED:  # else its replica has another quota, or is gone: the core hears of it next
            status, retry_seconds = STATUS.get(decision.code, (500, 0.0))
            if decision.code is RefuseCode.QUEUE_FULL:
                retry_seconds = max(retry_seconds, min(earliest(self._governor.state, decision.target, asked.priority), WAIT_SECONDS_MAX))
            code = f"quota_{decision.code.value}"
            self._post(QuotaRefused(self._now(), asked.turn, asked.attempt, asked.replica, status, code, decision.message, retry_seconds))

    def _heard(self, decision: Decision) -> None:
        """Whoever waits at a target that is blocked for long may not want to."""
        if not isinstance(decision, Blocked) or decision.until - self._governor.now < BLOCK_SECONDS_MIN:
            return
        for wish in self._wishes.values():
            if wish.target == decision.target:
                self._post(self._deferred(wish.decision, wish.target))

    # ---- from dataplanes

    def told(self, told: Told) -> None:
        """An answer, whose turn is about to end; or one that ended while nobody could be told."""
        if isinstance(told, AnswerTold):
            _bounded(self._told, TOLD_MAX)[told.turn, told.attempt] = told
            return
        target, want = self._target(told.replica), want_of(told.turn, told.attempt, told.replica)
        if told.outcome is Outcome.UNUSED:
            self._governor.post(LeaseReleased(self._governor.now, target, want, told.fence))
        else:
            self._report(target, want, told, told.answer)

    # ---- time

    async def run(self) -> None:
        """Renew the leases of turns in flight whose dataplanes are there, tell who can't wait on when to come again, until cancelled."""
        renew_seconds = self._lease_seconds / RENEWALS
        renewed_at = self._governor.now
        try:
            while True:
                await asyncio.sleep(min(BEAT_SECONDS, renew_seconds))
                with self._governor.faults.noted("turns"):
                    self.tell_the_last()
                if self._governor.now >= renewed_at + renew_seconds:
                    with self._governor.faults.noted("turns"):
                        self.renew()
                    renewed_at = self._governor.now
        finally:
            self._unlisten()

    def tell_the_last(self) -> None:
        """Whoever has waited nearly as long as it may hears when its window will be: if that is too late, it is refused with that."""
        state, now, governor = self._state(), self._now(), self._governor
        for want, wish in list(self._wishes.items()):
            turn = state.turns.get(wish.decision.turn)
            since = turn.quota.since if turn is not None and turn.quota is not None else 0.0
            if not since or now + LAST_SECONDS < since + state.settings.quota_hold_seconds_max or want not in self._wishes:
                continue
            asked, waiter = wish.decision, self._waiter(wish.decision, wish.target)
            if waiter is not None:
                draw = self._random.random()
                wait = advice(
                    governor.state, wish.target, waiter.priority, draw, now=governor.now, scopes=waiter.scopes, number=waiter.number
                )  # fmt: skip
                self._post(QuotaDeferred(now, asked.turn, asked.attempt, asked.replica, min(wait, WAIT_SECONDS_MAX)))

    def renew(self) -> None:
        state = self._state()
        now = self._governor.now
        away = {
            name for name, dataplane in state.dataplanes.items() if not dataplane.connected
        }  # their leases end in time if they are dead
        for turn in state.turns.values() if state.hosted else ():
            if turn.quota is not None and turn.quota.fence and turn.phase is TurnPhase.IN_FLIGHT and turn.dataplane not in away:
                want = want_of(turn.id, turn.attempt, turn.replica)
                self._governor.post(LeaseRenewed(now, self._target(turn.replica), want, turn.quota.fence))

    def _target(self, replica: str) -> str:
        known = self._state().replicas.get(replica)
        if known is not None and known.spec.quota:
            self._targets[replica] = known.spec.quota
        return self._targets.get(replica, "")


def want_of(turn: str, attempt: int, replica: str) -> str:
    """The name of a turn's wish, and of its lease."""
    return f"{turn}/{attempt}/{replica}"


def _outcome(outcome: Outcome, seen: Observation, told: AnswerTold | None) -> Literal["ok", "limited", "error"]:
    if outcome is Outcome.LIMITED or seen.limited or seen.kind is not None:
        return "limited"
    if outcome is Outcome.ANSWERED or (told is not None and told.status < 500):
        return "ok"
    return "error"


def _bounded(table: dict[K, V], most: int) -> dict[K, V]:
    """The table with room for one more: the oldest goes."""
    if len(table) >= most:
        del table[next(iter(table))]
    return table
