"""Whatever happens, who asks for quota is counted, asked for once, and each lease ends once."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.scheduler.core.decisions import CancelReserve, Decision, Lease, Outcome, Place, ReserveQuota, SettleQuota
from luftpause.scheduler.core.events import (
    Event,
    Kind,
    ProbeOutcome,
    QuotaDeferred,
    QuotaGranted,
    QuotaRefused,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    TurnRequested,
)  # fmt: skip
from luftpause.scheduler.core.model import TurnPhase
from luftpause.scheduler.core.settings import CallerPriority, Settings
from luftpause_bench.sim.recount import recount
from tests.properties.scheduler_world import OPS, World

HOSTED = (
    ReplicaSpec("a", "http://a", models=("m", "n"), quota="one", fallback=("n", "late")),
    ReplicaSpec("b", "http://b", models=("m",), quota="two", fallback=("n",)),
    ReplicaSpec("c", "http://c", models=("m",), capped=False, max_in_flight=3, quota="one"),
    ReplicaSpec("k", "http://k", models=("judge",), kind=Kind.CLASSIFIER, quota="three", max_in_flight=2),
    ReplicaSpec("l", "http://l"),  # learns its models
    ReplicaSpec("w", "http://w", models=("n", "la*")),
)
QUOTA_OPS = (*OPS, *("grant",) * 8, *("defer",) * 3, "deny", "ghost", "swap")
STEPS = st.lists(
    st.tuples(st.sampled_from(QUOTA_OPS), st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.0, 0.0, 0.005, 0.3, 2.0))),
    min_size=40,
    max_size=120,
)
TUNINGS = st.builds(
    Settings,
    policy=st.sampled_from(("original", "guard")),
    start_grace_seconds=st.sampled_from((0.0, 1.0)),
    no_replica=st.sampled_from(("hold", "refuse")),
    places_per_step_max=st.sampled_from((64, 1)),
    expiries_per_step_max=st.sampled_from((1000, 2)),
    batch_min_share=st.sampled_from((0.0, 0.3)),
    hold_seconds_max=st.sampled_from((None, 20.0)),
    held_turns_max=st.sampled_from((None, 4)),
    quota_hold_seconds_max=st.sampled_from((120.0, 10.0)),
    callers=st.sampled_from(((CallerPriority("*", may_claim=True),), (CallerPriority("u", 0), CallerPriority("v", 2, may_claim=True)))),
)
Wish = tuple[str, int, str]


@dataclass
class Governed(World):
    """A world whose governor is one of chance."""

    specs: tuple[ReplicaSpec, ...] = HOSTED
    wishes: dict[Wish, ReserveQuota] = field(default_factory=dict)
    ghosts: list[Wish] = field(default_factory=list)  # cancelled: a grant may be on its way
    leases: dict[int, Wish] = field(default_factory=dict)
    fences: int = 0
    lost: set[int] = field(default_factory=set)

    def follow(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        super().follow(event, decisions)
        for decision in decisions:
            match decision:
                case ReserveQuota():
                    wish = (decision.turn, decision.attempt, decision.replica)
                    assert wish not in self.wishes, "asked for twice"
                    self.wishes[wish] = decision
                case CancelReserve():
                    wish = (decision.turn, decision.attempt, decision.replica)
                    del self.wishes[wish]
                    self.ghosts.append(wish)
                case SettleQuota():
                    if decision.outcome is Outcome.LOST:
                        self.lost.add(decision.fence)
                    assert self.leases.pop(decision.fence, None) is not None or decision.fence in self.lost, "ended twice"
                case Place(lease=Lease(fence=fence)) if fence:
                    known = self.leases.get(fence)
                    assert known == (decision.turn, decision.attempt, decision.replica) or fence in self.lost
                case _:
                    pass

    def check(self, before: Any, event: Event, decisions: tuple[Decision, ...]) -> None:
        super().check(before, event, decisions)
        asked = {(turn.id, turn.attempt, name) for turn in self.state.turns.values() if turn.quota is not None for name in turn.quota.asks}
        assert asked == set(self.wishes)
        flying = [turn for turn in self.state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT]
        fences = {turn.quota.fence for turn in flying if turn.quota is not None and turn.quota.fence}
        assert set(self.leases) <= fences <= set(self.leases) | self.lost, "a lease without a turn, or a turn whose lease is over"
        for decision in decisions:
            if isinstance(decision, Place) and self.state.replicas[decision.replica].spec.quota and not isinstance(event, TurnRequested):
                assert isinstance(decision.lease, Lease), "placed without leave"
                assert decision.lease.fence, "placed without leave"

    # ---- the governor's answers

    def make_request(self, x: int, y: int, **more: Any) -> TurnRequested:
        return super().make_request(x, y, priority=(-1, -1, 0, 1, 2)[x % 5], answer_tokens_max=(0, 100)[y % 2], **more)

    def wish(self, x: int) -> Wish | None:
        wishes = sorted(self.wishes)
        return wishes[x % len(wishes)] if wishes else None

    def make_grant(self, x: int, y: int) -> QuotaGranted | None:
        wish = self.wish(x)
        if wish is None:
            return None
        del self.wishes[wish]
        return self.granted(wish, level=(0, 0, 1, 2, 3)[y % 5])

    def make_ghost(self, x: int, y: int) -> QuotaGranted | None:
        """A grant that crossed its cancellation."""
        ghosts = [wish for wish in self.ghosts if wish not in self.wishes]
        return self.granted(ghosts[x % len(ghosts)], level=y % 4) if ghosts else None

    def granted(self, wish: Wish, level: int) -> QuotaGranted:
        self.fences += 1
        self.leases[self.fences] = wish
        return QuotaGranted(self.now, *wish, self.fences, level)

    def make_defer(self, x: int, y: int) -> QuotaDeferred | None:
        wish = self.wish(x)
        return QuotaDeferred(self.now, *wish, (0.0, 0.0, 3.0, 30.0, 500.0)[y % 5]) if wish else None

    def make_deny(self, x: int, y: int) -> QuotaRefused | None:
        wish = self.wish(x)
        if wish is None:
            return None
        del self.wishes[wish]
        return QuotaRefused(self.now, *wish, 429, "too_large", "too large", float(y % 2))

    def make_swap(self, x: int, y: int) -> Event:
        """Replicas get other quotas, or none."""
        quotas = ("", "one", "two")
        specs = tuple(replace(spec, quota=quotas[(x + number * y) % 3]) for number, spec in enumerate(HOSTED))
        changed = super().make_config(0, y)
        return replace(changed, replicas=specs)


@settings(max_examples=100)
@given(TUNINGS, STEPS)
def test_who_asks_is_counted_and_each_lease_ends_once(tuning: Settings, steps: list[tuple[str, int, int, float]]) -> None:
    world = Governed(tuning)
    for step in steps:
        world.apply(*step)


@settings(max_examples=30)
@given(TUNINGS, STEPS)
def test_when_all_turns_have_ended_nobody_asks_and_no_lease_is_out(tuning: Settings, steps: list[tuple[str, int, int, float]]) -> None:
    world = Governed(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    world.drain()
    state = world.state
    recount(state)
    assert not state.turns
    assert not state.asking
    assert not state.lines
    assert not state.run_quotas
    assert not world.wishes
    assert not world.leases


@pytest.mark.parametrize("seed", range(4))
def test_long_lives_of_many_turns_that_ask(seed: int) -> None:
    """Longer than what hypothesis draws, so that every kind of answer meets every state."""
    chance = Random(seed)
    policy: Literal["original", "guard"] = "guard" if seed % 2 else "original"
    world = Governed(
        Settings(
            start_grace_seconds=0.0,
            policy=policy,
            callers=(CallerPriority("*", may_claim=True),),
            quota_hold_seconds_max=(120.0, 10.0)[seed // 2],
        )
    )
    for _ in range(300):
        world.apply(chance.choice(QUOTA_OPS), chance.randrange(61), chance.randrange(61), chance.choice((0.0, 0.005, 0.3, 2.0)))
    leases = [decision.lease for decision in world.decisions if isinstance(decision, Place) and isinstance(decision.lease, Lease)]
    assert any(lease.level for lease in leases)
    assert any(isinstance(decision, CancelReserve) for decision in world.decisions)


@pytest.mark.parametrize("turns", [3, 9])
def test_all_who_wait_for_quota_hear_of_a_change_however_few_a_step_may_tell(turns: int) -> None:
    """A scheduler whose step tells 1,000 once told the first 1,000 of more without end."""
    world = Governed(Settings(start_grace_seconds=0.0, expiries_per_step_max=2), specs=HOSTED[:2])
    world.send(ReplicaProbed(world.now, "a", ProbeOutcome.OK))
    for number in range(turns):
        world.send(TurnRequested(world.now, "d", f"t{number}", 1, f"r{number}", "m"))
    for wish in sorted(world.wishes):
        world.send(QuotaDeferred(world.now, *wish, 3.0))
    world.send(ReplicaProbed(world.now, "b", ProbeOutcome.OK))
    assert set(world.wishes) == {(f"t{number}", 1, name) for number in range(turns) for name in "ab"}
    world.send(ReplicaProbed(world.now, "b", ProbeOutcome.OK, models=("other",)))
    world.send(ReplicaSuspected(world.now, "d", "a"))
