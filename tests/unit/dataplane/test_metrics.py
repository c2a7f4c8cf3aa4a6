"""Does the dataplane's metrics page say what happened, in bounded labels, and is all of it documented?"""

import asyncio
from pathlib import Path

import pytest

from luftpause.dataplane import wire
from luftpause.dataplane.answers import Answers
from luftpause.dataplane.flows import NAMES_MAX, Flows
from luftpause.dataplane.ledger import Ledger
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.metrics import LinkMetrics, LoopLag, PlaneMetrics
from luftpause.dataplane.orders import absorb
from luftpause.dataplane.tally import MODELS_MAX
from luftpause.dataplane.turns import ReturnReason, TurnClass, Usage
from luftpause.dataplane.workers import OfWorker, Up, Worker, merged
from luftpause.kit import metrics
from tests.support.promtool import Page
from tests.support.scheduler_double import a_list_of
from tests.support.waiters import Recorder, an_ask

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
P = "luftpause_dataplane_"


class World:
    def __init__(self) -> None:
        self.now = 100.0
        memory = Memory(seconds=1800, runs_max=1000)
        self.ledger = Ledger(memory, lambda: self.now, words=wire, send=lambda _: None, send_soon=lambda _: None, environ={})
        self.ledger.opening()
        self.ledger.opened()
        absorb(self.ledger, a_list_of("a", "b"))
        self.answers = Answers(("/v1/chat/completions",))
        self.flows = Flows()
        self.lag = LoopLag()
        self.collectors = (
            LinkMetrics(self.ledger, lambda: 3),
            PlaneMetrics(
                self.answers, self.flows, self.lag, lambda: 7, metrics.Counter("luftpause_dataplane_faults", "Faults.", ("work",))
            ),
        )

    def ask(self, turn: str, **more: object) -> None:
        self.ledger.ask(an_ask(turn, **more), Recorder())  # pyright: ignore[reportArgumentType]

    def place(self, turn: str, replica: str = "a", *, attempt: int = 1, why: str = "") -> None:
        self.ledger.placed(turn, attempt, run="r", replica=replica, turn_seq=1, why=why, held_ms=0)

    async def page(self, accept: str = "") -> Page:
        text, _ = await metrics.page(self.collectors, accept)
        return Page(text.decode(), openmetrics=bool(accept))


async def test_a_turn_is_counted_from_its_arrival_to_its_end() -> None:
    world = World()
    world.ask("t", body_bytes=2000)
    world.now += 2
    world.place("t", why="capped")
    world.ledger.started("t")
    world.ledger.tick()
    world.now += 0.2
    world.ledger.first_token("t")
    world.now += 3
    world.ledger.finished("t", "tool_calls", Usage(10, 20, 5), paused=True)
    page = await world.page()
    assert page.sum(P + "turns_total", api="chat", **{"class": "interactive"}, replica="a", outcome="paused") == 1
    assert page.sum(P + "turn_body_bytes_total") == 2000
    for name, seconds, labels in (
        ("held_seconds", 2.0, {"reason": "capped"}),
        ("first_token_seconds", 2.2, {"model": "m"}),
        ("engine_first_token_seconds", 0.2, {"replica": "a"}),
        ("turn_seconds", 5.2, {"model": "m", "class": "interactive"}),
    ):
        assert page.sum(f"{P}{name}_count", **labels) == 1
        assert page.sum(f"{P}{name}_sum", **labels) == pytest.approx(seconds)
    tokens = {kind: page.sum(P + "tokens_total", model="m", replica="a", type=kind) for kind in ("prompt", "completion", "cached")}
    assert tokens == {"prompt": 10, "completion": 20, "cached": 5}
    assert {kind: page.sum(P + "facts_total", type=kind) for kind in ("requested", "started", "first_token", "finished")} == dict.fromkeys(
        ("requested", "started", "first_token", "finished"), 1
    )
    assert page.sum(P + "orders_total", type="placed") == 1


async def test_every_other_end_has_its_outcome_and_gauges_show_what_is_left() -> None:
    world = World()
    for turn in ("refused", "abandoned", "failed", "held", "flying", "back"):
        world.ask(turn, turn_class=TurnClass.BATCH)
    world.ledger.refused("refused", 1, run="r", status=404, code="c", message="m", retry_after_s=0)
    world.ledger.abandon("abandoned")
    for turn in ("failed", "flying", "back"):
        world.place(turn, "b")
    world.ledger.started("failed")
    world.ledger.failed("failed", "engine_died", Usage(7, 2, 4))
    world.ledger.give_back("back", ReturnReason.BUSY)
    page = await world.page()
    outcomes = {outcome: page.sum(P + "turns_total", outcome=outcome) for outcome in ("refused", "abandoned", "engine_died")}
    assert outcomes == dict.fromkeys(outcomes, 1)
    assert page.sum(P + "turns_total", replica="b") == 1
    tokens = {kind: page.sum(P + "tokens_total", replica="b", type=kind) for kind in ("prompt", "completion", "cached")}
    assert tokens == {"prompt": 7, "completion": 2, "cached": 4}
    assert page.sum(P + "returns_total", replica="b", reason="busy") == 1
    assert page.sum(P + "held_turns", **{"class": "batch"}) == 2
    assert page.sum(P + "in_flight_turns", **{"class": "batch"}, replica="b") == 1
    assert page.sum(P + "turn_seconds_count") == 0
    assert page.sum(P + "session", state="open") == 1
    world.ledger.closed()
    assert (await world.page()).sum(P + "session", state="closed") == 1


async def test_names_from_outside_stay_few() -> None:
    world = World()
    for number in range(MODELS_MAX + 5):
        name = f"t{number}"
        world.ask(name, model=f"made-up-{number}")
        world.place(name)
        world.ledger.finished(name, "stop", Usage(1, 1), paused=False)
        world.answers.add(f"/made/up/{number}", b"HTTP/1.1 404 Not Found\r\n")
        world.answers.add(f"/v1/runs/{number}", b"HTTP/1.1 204 No Content\r\n")
    world.answers.add("/v1/chat/completions", b"HTTP/1.1 200 OK\r\n")
    for number in range(NAMES_MAX + 5):
        world.flows.of(f"replica-{number}").sent_bytes += 1
    found = {"/v1/chat/completions": "200", "/v1/runs/{run}": "204", "other": "404"}
    counts = dict(world.answers.series())
    assert counts == {(route, code): 1 if code == "200" else MODELS_MAX + 5 for route, code in found.items()}
    models = {
        labels["model"] for family in world.ledger.tally.families() for labels in (s.labels for s in family.samples) if "model" in labels
    }
    assert len(models) == MODELS_MAX + 1
    assert world.flows.by_replica["other"].sent_bytes == 5


async def test_pages_of_workers_become_one_in_both_formats() -> None:
    for accept in ("", "application/openmetrics-text"):
        worlds = [World(), World()]
        worlds[1].ask("t")
        worlds[1].place("t")
        worlds[1].ledger.finished("t", "stop", None, paused=False)
        worker = Worker(0, 3, Path("/nowhere"))
        pages = [
            (await metrics.page((Up(worker, [1]), OfWorker(0, worlds[0].collectors)), accept))[0],
            (await metrics.page((OfWorker(1, worlds[1].collectors),), accept))[0],
        ]
        page = Page(merged(pages).decode(), openmetrics=bool(accept))
        assert {each: page.sum(P + "worker_up", worker=each) for each in "012"} == {"0": 1, "1": 1, "2": 0}
        assert (page.sum(P + "turns_total", worker="1"), page.sum(P + "turns_total", worker="0")) == (1, 0)
        assert page.sum(P + "client_connections") == 14


async def test_the_lag_of_the_loop_is_looked_at() -> None:
    lag = LoopLag()
    lag.start()
    async with asyncio.timeout(60):
        while not lag.seconds.family().samples[-2].value:
            await asyncio.sleep(0.01)
    lag.stop()


async def test_every_metric_is_documented() -> None:
    world = World()
    world.flows.of("a").made += 1
    text = DOCS.read_text()
    text = text[text.index("## The dataplane's metrics") :]
    worker = Worker(0, 1, Path("/nowhere"))
    body, _ = await metrics.page((Up(worker, []), *world.collectors), "")
    for name, family in Page(body.decode()).families.items():
        shown = name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        assert f"`{shown.removeprefix(P)}" in text, f"{shown} is not documented in docs/operations.md"
