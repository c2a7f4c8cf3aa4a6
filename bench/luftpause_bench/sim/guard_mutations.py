"""Which functions of the guard policy can be replaced by wrong ones that a world notices?"""

# pyright: reportPrivateUsage=false

from typing import Any

from msgspec.structs import replace

from luftpause.scheduler.core import guard, guard_accounts, guard_order, policies
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnFinished
from luftpause.scheduler.core.frame import Facts, Learned
from luftpause.scheduler.core.guard_model import Guarded
from luftpause.scheduler.core.model import Replica, Turn
from luftpause_bench.sim.mutations import Change


def _guard(**changed: Any) -> tuple[Change, ...]:
    return ((policies, "POLICIES", {**policies.POLICIES, "guard": replace(guard.GUARD, **changed)}),)


def ends_are_not_heard() -> tuple[Change, ...]:
    def ended(facts: Facts, turn: Turn, finished: TurnFinished | None) -> Learned:
        del turn, finished
        return Learned(facts.policy_state)

    return _guard(ended=ended)


def waits_for_ever() -> tuple[Change, ...]:
    def waits(facts: Facts, turn: Turn, by: int) -> Learned:
        return guard_accounts.waits(facts, turn, by) if by > 0 else Learned(facts.policy_state)

    return _guard(waits=waits)


def ranks_are_stale() -> tuple[Change, ...]:
    return ((guard_order, "told", Learned),)


def moves_up_once() -> tuple[Change, ...]:
    right = guard_order._moved_up

    def moved_up(facts: Facts, g: Guarded, name: str) -> Guarded:
        moved = right(facts, g, name)
        return replace(moved, steps=g.steps.remove((g.flows[name].step_at, name)))

    return ((guard_order, "_moved_up", moved_up),)


def an_idle_engine_takes_nobody() -> tuple[Change, ...]:
    def admits(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
        return guard._admits(facts, replica if replica.in_flight else replace(replica, in_flight=1), turn)

    return _guard(admits=admits)
