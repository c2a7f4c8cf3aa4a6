"""Does `/metrics` tell what happened, and only under labels that stay few?"""

import json
from pathlib import Path

from prometheus_client.exposition import generate_latest

from luftpause.kit.config import Config
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    ConfigChanged,
    DataplaneLost,
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    ReturnReason,
    Tick,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    Usage,
)
from luftpause.scheduler.core.memory import TurnMemory
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.host import Host
from luftpause.scheduler.metrics import SchedulerMetrics
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.replicas import announced, specs
from luftpause.scheduler.status import schema
from luftpause.scheduler.tally import Tally
from tests.support.promtool import Page

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
A = ReplicaSpec("a", "http://a", models=("m",))
B = ReplicaSpec("b", "http://b", models=("m",), capped=False)
P = "luftpause_scheduler_"


class NoSessions:
    """A server that nobody is connected to."""

    def __init__(self):
        self.sessions = {}
        self.unknown_facts = 0


class World:
    """A host with the real core and no dataplane; time is that of the last event."""

    def __init__(self, *replicas: ReplicaSpec, **settings) -> None:
        self.now = 10.0
        state = initial(Settings(start_grace_seconds=0.0, **settings), replicas or (A,), self.now)
        self.tally = Tally()
        self.host = Host(decide, state, replicas=announced, clock=lambda: self.now, observers=(self.tally,))
        self.collector = SchedulerMetrics(self.host, NoSessions(), self.tally, lambda: self.now)

    def happens(self, *events: Event) -> "World":
        for event in events:
            self.now = max(self.now, event.now)
            self.host.post(event)
            self.host.advance()
        return self

    def page(self) -> Page:
        return Page(generate_latest(self.collector).decode())

    def value(self, name: str, **labels: str) -> float:
        return self.page().sum(P + name, **labels)


def probed(now: float, replica: str = "a", load: Load | None = None) -> ReplicaProbed:
    return ReplicaProbed(now, replica, ProbeOutcome.OK, load)


def asks(now: float, turn: str, turn_class: TurnClass = TurnClass.INTERACTIVE, model: str = "m") -> TurnRequested:
    return TurnRequested(now, "d", turn, 1, f"run-{turn}", model, turn_class, "someone")


async def test_turns_are_counted_by_class_replica_and_how_they_ended():
    world = World().happens(probed(11), asks(12, "t1"), asks(12, "t2"), asks(12, "t3", TurnClass.BATCH), asks(12, "t4"))
    assert world.value("in_flight_turns", **{"class": "interactive"}, replica="a") == 3
    world.happens(
        TurnFinished(13, "d", "t1", 1, usage=Usage(100, 7, 60)),
        TurnFinished(13, "d", "t2", 1, paused=True, tool_call_ids=("call_0123456789abcdef",)),
        TurnFailed(13, "d", "t3", 1, "engine_died"),
        TurnFailed(13, "d", "t4", 1, "something new"),
    )
    page = world.page()
    found = {tuple(dict(labels).values()): value for (name, labels), value in page.values.items() if name == P + "turns_total"}
    assert found == {
        ("interactive", "finished", "a"): 1,
        ("interactive", "paused", "a"): 1,
        ("batch", "engine_died", "a"): 1,
        ("interactive", "other", "a"): 1,
    }
    assert [page.sum(P + "tokens_total", type=kind) for kind in ("prompt", "completion", "cached")] == [100, 7, 60]
    assert page.sum(P + "replica_reserved_places", replica="a") == 1
    assert page.sum(P + "in_flight_turns") == 0
    assert page.sum(P + "runs", phase="paused") == 1


async def test_events_that_a_full_disk_kept_out_of_the_log_are_counted(tmp_path: Path):
    world = World()
    recorder = Recorder(tmp_path, queue_events_max=2)  # its thread never begins, so nothing is written
    world.host._observers += (recorder.observe,)
    world.collector = SchedulerMetrics(world.host, NoSessions(), world.tally, lambda: world.now, recorder)
    world.happens(probed(11), asks(12, "t1"), asks(12, "t2"))
    assert recorder.lost > 0
    assert world.value("unrecorded_events_total") == recorder.lost


async def test_a_hold_is_counted_when_it_begins_and_measured_when_it_ends():
    world = World().happens(probed(11, load=Load(1, 3)), asks(12, "t1"), asks(12, "t2"), asks(12.5, "t3", TurnClass.BATCH))
    assert world.value("held_turns", reason="capped") == 2
    assert world.value("held_turns", reason="capped", **{"class": "batch"}) == 1
    assert world.value("replica_cap_turns", replica="a") == 1
    world.now = 15.0
    assert world.value("held_oldest_seconds", **{"class": "interactive"}) == 3
    assert world.value("held_seconds_count") == 1
    world.happens(TurnFinished(16.5, "d", "t1", 1))
    assert world.value("held_seconds_count", reason="none") == 1
    assert world.value("held_seconds_sum", reason="capped", **{"class": "interactive"}) == 4.5
    assert world.value("held_seconds_bucket", reason="capped", le="2.5") == 0
    assert world.value("held_seconds_bucket", reason="capped", le="5.0") == 1
    assert world.value("holds_total", reason="capped") == 2


async def test_what_was_given_back_refused_abandoned_or_expired_is_told_apart():
    world = World(A, B, turn_timeout_seconds=5.0).happens(probed(11), asks(12, "t1"), asks(12, "t2"), asks(12, "nope", model="none"))
    world.happens(TurnReturned(12.5, "d", "t1", 1, "a", ReturnReason.UNREACHABLE), TurnAbandoned(12.5, "d", "t1", 2))
    assert world.value("returns_total", replica="a", reason="unreachable") == 1
    assert world.value("turns_total", replica="", outcome="abandoned") == 1
    assert world.value("turns_total", replica="", outcome="refused") == world.value("refusals_total", code="model_not_found") == 1
    world.happens(Tick(18), Tick(19))
    assert world.value("turns_total", replica="a", outcome="expired") == 1
    assert world.value("decisions_total", type="Expire") == 1
    assert world.value("in_flight_turns") == 0


async def test_a_resync_adopts_turns_and_ends_those_it_does_not_list():
    world = World().happens(Resync(10.5, "d", "s1", "boot"), probed(11), asks(12, "t1"))
    memory = TurnMemory("t9", 1, "r9", "m", "a", 1, TurnClass.BATCH, "someone", 11.0)
    world.happens(DataplaneLost(13, "d", "s1"), Resync(14, "d", "s2", "boot", turns=(memory,)))
    assert world.value("adopted_turns_total", replica="a", **{"class": "batch"}) == 1
    assert world.value("turns_total", replica="a", outcome="unlisted", **{"class": "interactive"}) == 1
    assert world.value("in_flight_turns", replica="a", **{"class": "batch"}) == 1
    assert world.value("undeliverable_orders_total") == 1


async def test_counters_go_on_through_a_change_of_configuration_and_gauges_follow_it():
    world = World().happens(probed(11), asks(12, "t1"), asks(12, "t2"), TurnFinished(13, "d", "t1", 1))
    before = world.page()
    world.happens(ConfigChanged(14, (B,)))
    world.page().follows(before)
    assert world.value("turns_total", replica="a") == 1
    assert world.value("in_flight_turns", replica="a") == 1
    assert world.page().labels()["replica"] == {"a", "b"}
    assert world.value("replica_health", replica="b", state="unknown") == 1
    assert world.value("replica_cap_turns", replica="b") == float("inf")
    assert not [name for name, labels in world.page().values if name == P + "replica_health" and ("replica", "a") in labels]
    world.happens(TurnFinished(15, "d", "t2", 1), ConfigChanged(16, (B,)))
    assert not [labels for name, labels in world.page().values if name == P + "in_flight_turns" and ("replica", "a") in labels]
    world.page().follows(before)


async def test_the_load_of_an_engine_is_shown_while_it_is_known():
    world = World().happens(probed(11, load=Load(4, 0)))
    world.now = 13.0
    page = world.page()
    assert [page.sum(P + "replica_" + name) for name in ("running_requests", "waiting_requests", "load_age_seconds")] == [4, 0, 2]
    world.happens(ReplicaProbed(13, "a", ProbeOutcome.MISSED), Tick(30))
    assert world.value("replica_probe_misses") == 1
    assert not [name for name, _ in world.page().values if name.startswith(P + "replica_load_age")]


def test_the_schema_of_the_status_is_the_one_in_the_documentation():
    written = json.loads((DOCS.parent / "status.schema.json").read_text())
    assert written == json.loads(json.dumps(schema())), "run: python tools/generate_status_schema.py"


async def test_every_metric_stands_in_the_documentation():
    config = Config.model_validate({"replicas": [{"name": "a", "url": "http://127.0.0.1:1"}]})
    world = World(*specs(config.replicas)).happens(probed(11, load=Load(1, 0)))
    text = DOCS.read_text()
    for name, family in world.page().families.items():
        shown = name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        assert f"`{shown.removeprefix(P)}" in text, f"{shown} is not documented in docs/operations.md"
