"""Is the frame of a policy enough for one that counts tokens?

A policy with an account per replica: what is in flight there in bytes, what its prefixes were said to be, and a limit on that.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core import policies
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import ReplicaProbed, TurnClass, TurnFinished
from luftpause.scheduler.core.model import Replica, Turn, TurnPhase
from luftpause.scheduler.core.policies import ORIGINAL, Facts, Learned
from luftpause.scheduler.core.settings import Settings
from tests.properties.scheduler_world import World
from tests.properties.test_scheduler_decide import STEPS


class Account(Struct, frozen=True):
    bytes_of: "Map[str, int]" = Map()  # replica -> of its turns in flight
    turns: "Map[str, str]" = Map()  # in flight -> where
    tokens: int = 0  # as usage reports said
    probes: int = 0


def _add(facts: Facts, turn: Turn, by: int) -> Account:
    account: Account = facts.policy_state
    return replace(account, bytes_of=account.bytes_of.set(turn.replica, account.bytes_of.get(turn.replica, 0) + by))


def placed(facts: Facts, turn: Turn) -> Learned:
    assert turn.id not in facts.policy_state.turns
    account = _add(facts, turn, turn.body_bytes)
    return Learned(replace(account, turns=account.turns.set(turn.id, turn.replica)))


def ended(facts: Facts, turn: Turn, finished: TurnFinished | None) -> Learned:
    account = _add(facts, turn, -turn.body_bytes)
    tokens = finished.usage.prompt if finished and finished.usage else 0
    return Learned(replace(account, turns=account.turns.delete(turn.id), tokens=account.tokens + tokens))


def probed(facts: Facts, event: ReplicaProbed) -> Learned:
    account = facts.policy_state
    return Learned(replace(account, probes=account.probes + 1), (event.replica,), tuple(sorted({turn.flow for turn in held(facts)})))


def held(facts: Facts) -> list[Turn]:
    return [turn for turn in facts.turns.values() if turn.phase is TurnPhase.HELD]


def admits(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    """At most 200 bytes of batch turns beside others; an idle replica takes any."""
    taken = facts.policy_state.bytes_of.get(replica.name, 0)
    return HoldReason.CAPPED if turn.turn_class is TurnClass.BATCH and taken and taken + turn.body_bytes > 200 else None


def fresh(of: Settings) -> Account:
    del of
    return Account()


COUNTING = replace(ORIGINAL, initial=fresh, absorbs={ReplicaProbed: probed}, placed=placed, ended=ended, admits=admits)


@pytest.fixture(autouse=True, scope="module")
def _known() -> object:
    policies.POLICIES["counting"] = COUNTING
    yield
    del policies.POLICIES["counting"]


@settings(max_examples=50)
@given(STEPS)
def test_a_policy_that_keeps_an_account_of_what_is_in_flight_is_told_of_every_beginning_and_end(
    steps: list[tuple[str, int, int, float]],
) -> None:
    world = World(Settings(policy="counting", start_grace_seconds=0.0), checks=False)
    for op, x, y, dt in steps:
        event_bytes = {"body_bytes": x * 7}
        if op == "request":
            world.now += dt
            world.send(world.make_request(x, y, **event_bytes))
        else:
            world.apply(op, x, y, dt)
        flying = [turn for turn in world.state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT]
        account: Account = world.state.policy_state
        assert dict(account.turns) == {turn.id: turn.replica for turn in flying}
        expected = Counter[str]()
        for turn in flying:
            expected[turn.replica] += turn.body_bytes
        assert {name: size for name, size in account.bytes_of.items() if size} == {name: size for name, size in expected.items() if size}
