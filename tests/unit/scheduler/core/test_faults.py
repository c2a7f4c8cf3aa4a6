"""Does an engine that fails its turns lose them to others, for a while, and only then?"""

from typing import Any

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import Event, ProbeOutcome, ReplicaProbed, ReplicaSpec, TurnFailed, TurnFinished, TurnRequested
from luftpause.scheduler.core.model import Health
from luftpause.scheduler.core.settings import Settings

BOTH = (ReplicaSpec("bad", "http://bad", models=("m",)), ReplicaSpec("good", "http://good", models=("m",)))


class World:
    """`bad` fails whatever it gets, `good` keeps what it gets. Nothing caps them."""

    def __init__(self, *specs: ReplicaSpec, **settings: int) -> None:
        self.now = 1.0
        self.turns = 0
        self.state = initial(Settings(start_grace_seconds=0.0, burst_turns_max=0, **settings), specs or BOTH, 0.0)
        self.probe()

    def tell(self, event: Event) -> str:
        """Where the step has placed a turn."""
        step = decide(self.state, event)
        self.state = step.state
        return next((each.replica for each in step.decisions if isinstance(each, Place)), "")

    def probe(self, outcome: ProbeOutcome = ProbeOutcome.OK) -> None:
        for name in self.state.replicas:
            good = outcome if name == "good" else ProbeOutcome.OK
            self.tell(ReplicaProbed(self.now, name, good))

    def ask(self, run: str = "", model: str = "m", body_hash: bytes = b"") -> str:
        """A turn of that run, or of a new one; where it went."""
        self.turns += 1
        return self.tell(TurnRequested(self.now, "d", f"t{self.turns}", 1, run or f"run-{self.turns}", model, body_hash=body_hash))

    def fails(self, reason: str = "engine_fault") -> None:
        self.tell(TurnFailed(self.now, "d", f"t{self.turns}", 1, reason))

    def answers(self) -> None:
        self.tell(TurnFinished(self.now, "d", f"t{self.turns}", 1, "stop"))

    def wears_out(self, times: int = 3, reason: str = "engine_fault") -> None:
        for _ in range(times):
            assert self.ask() == "bad"  # it is empty, as it fails all
            self.fails(reason)

    @property
    def resting(self) -> list[str]:
        return [name for name, replica in sorted(self.state.replicas.items()) if replica.rests_until > self.now]

    @property
    def health(self) -> Health:
        return self.state.replicas["bad"].health


def world_with_load() -> World:
    """`good` has a turn, so that `bad` is the emptier one."""
    world = World()
    world.tell(ReplicaProbed(world.now, "bad", ProbeOutcome.REFUSED))
    assert world.ask() == "good"
    world.probe()
    return world


def test_after_three_faults_in_a_row_others_have_its_turns() -> None:
    world = world_with_load()
    assert world.ask("agent") == "bad"
    world.fails()
    assert world.ask("agent") == "bad"
    world.fails()
    assert world.health is Health.HEALTHY
    assert world.ask("agent") == "bad"
    world.fails()
    assert world.health is Health.UNHEALTHY
    assert [world.ask("agent"), world.ask(), world.ask()] == ["good"] * 3


def test_good_probes_do_not_end_its_rest_and_time_does() -> None:
    world = world_with_load()
    world.wears_out()
    world.now += 9.0
    world.probe()
    assert world.health is Health.UNHEALTHY
    assert world.ask() == "good"
    world.now += 1.0
    world.probe()
    assert world.health is Health.HEALTHY
    world.wears_out(1)  # one more is enough now
    assert world.health is Health.UNHEALTHY


def test_an_answer_between_them_makes_faults_no_row() -> None:
    world = world_with_load()
    world.wears_out(2)
    assert world.ask() == "bad"
    world.answers()
    world.wears_out(2)
    assert world.health is Health.HEALTHY


def test_what_clients_do_wrong_is_no_fault() -> None:
    world = world_with_load()
    for reason in ("engine_error", "client_left", "stream_error"):
        world.wears_out(5, reason)
    assert world.health is Health.HEALTHY


@pytest.mark.parametrize("poison", [{"body_hash": b"it"}, {"run": "agent"}])
def test_a_request_that_no_engine_answers_makes_one_replica_rest_and_not_one_after_the_other(poison: dict[str, Any]) -> None:
    world = World(*BOTH, ReplicaSpec("third", "http://third", models=("m",)))
    tried: set[str] = set()
    for _ in range(20):  # as clients do that try again at each 5xx
        tried.add(world.ask(**poison))
        world.fails()
    assert tried == {"bad", "good"}
    assert world.resting == ["bad"]
    for _ in range(3):  # of others: that engine is broken, too
        assert world.ask() == "good"
        world.fails()
    assert world.resting == ["bad", "good"]


def test_what_failed_elsewhere_counts_again_once_that_replica_has_answered() -> None:
    world = world_with_load()
    assert world.ask("agent") == "bad"
    world.fails()
    world.tell(ReplicaProbed(world.now, "bad", ProbeOutcome.REFUSED))
    assert world.ask("agent") == "good"
    world.fails()
    assert [each.counts for each in world.state.replicas["good"].faults] == [False]
    world.probe()
    world.tell(ReplicaProbed(world.now, "good", ProbeOutcome.REFUSED))
    assert world.ask() == "bad"
    world.answers()
    world.probe()
    world.tell(ReplicaProbed(world.now, "bad", ProbeOutcome.REFUSED))
    assert world.ask("agent") == "good"
    world.fails()
    assert [each.counts for each in world.state.replicas["good"].faults] == [False, True]


def test_where_nobody_else_serves_all_its_models_it_goes_on() -> None:
    alone = World(BOTH[0])
    alone.wears_out(10)
    assert alone.health is Health.HEALTHY
    special = World(ReplicaSpec("bad", "http://bad", models=("m", "special")), BOTH[1])
    for _ in range(5):
        assert special.ask(model="special") == "bad"
        special.fails()
    assert special.health is Health.HEALTHY


def test_if_the_others_go_away_meanwhile_it_is_tried_again() -> None:
    world = world_with_load()
    world.wears_out()
    world.probe(ProbeOutcome.REFUSED)  # of `good`
    world.probe(ProbeOutcome.REFUSED)
    assert world.health is Health.HEALTHY
    assert world.ask() == "bad"


def test_it_can_be_turned_off() -> None:
    world = World(faults_max=0)
    world.tell(ReplicaProbed(world.now, "bad", ProbeOutcome.REFUSED))
    world.ask()
    world.probe()
    world.wears_out(10)
    assert world.health is Health.HEALTHY
