"""Does `decide` place, refuse and expire what a naive reading of the specification does?"""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Decision, Expire, Place, Refuse
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    ReturnReason,
    RunEnded,
    Tick,
    ToolCallSeen,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)  # fmt: skip
from luftpause.scheduler.core.model import Settings
from tests.properties.scheduler_oracle import Oracle

PACES = (1, 1, 1, 1, 1, 2, 3, 11, 40, 130, 900)
STEPS = 90


class Walk:
    """One seeded history of a pool, told to both."""

    def __init__(self, seed: int) -> None:
        r = self.random = random.Random(seed)
        self.settings = Settings(
            start_grace_seconds=0.0,
            runs_per_id_max=1000,  # the oracle forgets none
            burst_turns_max=r.choice((None, None, 2, 0)),
            cap_release=r.choice(("stepwise", "stepwise", "at_once")),
            reserve_seconds_max=r.choice((120.0, 120.0, 10.0, 0.0)),
            stickiness=r.choice(("strict", "strict", "off")),
            batch_min_share=r.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
            hold_seconds_max=r.choice((None, None, 20.0)),
            held_turns_max=r.choice((None, None, 0, 5)),
            held_turns_per_caller_max=r.choice((None, None, 3)),
        )
        self.possible = (
            ReplicaSpec("a", "http://a", ("m",)),
            ReplicaSpec("b", "http://b", ("m", "n"), max_in_flight=r.choice((None, 4))),
            ReplicaSpec("c", "http://c", r.choice((("m",), ("*",), ("n", "m*"))), capped=False, max_in_flight=r.choice((None, 1, 3))),
        )
        self.configured = self.possible[: r.choice((1, 2, 3))]
        self.state = initial(self.settings, self.configured, 0.0)
        self.oracle = Oracle(self.settings, self.configured)
        self.flaky = r.random() < 0.4
        self.now, self.asked = 1.0, 0
        self.paused: list[TurnRequested] = []
        self.log: list[Event] = []

    def play(self) -> None:
        self.send(Resync(self.now, "d", "s", "b"))
        for spec in self.configured:
            self.probe(spec)
        moves = (self.ask, self.end, self.abandon, self.give_back, self.end_run, self.ask_again, self.configure, self.look, self.wait)
        for move in self.random.choices(moves, (30, 22, 4, 2, 1, 1, 1, 14, 25), k=STEPS):
            move()

    def send(self, event: Event) -> None:
        self.log.append(event)
        step = decide(self.state, event)
        assert not step.more
        self.state = step.state
        told = [said for decision in step.decisions if (said := essence(decision))]
        expected = [said for said in self.oracle.decide(event) if said[0] != "held"]
        assert in_order(told) == in_order(expected), "\n".join(map(str, self.log))

    def ask(self) -> None:
        r = self.random
        self.asked += 1
        turn, now = f"t{self.asked}", self.now
        if self.paused and r.random() < 0.5:
            again = self.paused.pop(r.randrange(len(self.paused)))
            if r.random() < 0.1:
                self.paused.append(again)
            ids = again.tool_call_ids[: r.choice((1, 9, 9, 9))]
            head = b"other" if r.random() < 0.1 else again.head_digest
            event = replace(again, now=now, turn=turn, fresh_run=f"f{turn}", tool_call_ids=ids, head_digest=head)
        else:
            event = TurnRequested(
                now, "d", turn, 1, f"f{turn}", r.choice(("m", "m", "m", "n")), r.choice(list(TurnClass)), r.choice("pqr"),
                r.choice(("", "", "", "r1", "r2", "r3", "r4")), head_digest=r.choice((b"h1", b"h2", b"h3")),
            )  # fmt: skip
        self.send(replace(event, arrived=now - 0.5 + self.asked / 1e6, body_hash=r.choice((b"", b"x", b"y"))))

    def end(self) -> None:
        r = self.random
        turn = self.some(placed=True)
        if turn is None:
            return
        name, attempt, kind = turn.asked.turn, turn.attempt, r.random()
        if kind > 0.8:
            self.send(TurnFailed(self.now, "d", name, attempt, "engine_died"))
        elif kind > 0.5:
            self.send(TurnFinished(self.now, "d", name, attempt))
        else:
            ids = self.ids()
            if r.random() < 0.5:
                self.send(ToolCallSeen(self.now, "d", name, ids))
            stated = turn.run if turn.run.startswith("r") and r.random() < 0.8 else ""
            self.paused.append(replace(turn.asked, run=stated, tool_call_ids=ids, body_hash=b""))
            self.send(TurnFinished(self.now, "d", name, attempt, paused=True, tool_call_ids=ids))

    def ids(self) -> tuple[str, ...]:
        r = self.random
        many = r.choice((0, 1, 1, 1, 2, 3))
        return tuple(f"toolu_Xq{r.getrandbits(48)}Zk9w" if r.random() < 0.6 else f"call_{r.randrange(3)}" for _ in range(many))

    def abandon(self) -> None:
        if (turn := self.some(placed=False)) is not None:
            self.send(TurnAbandoned(self.now, "d", turn.asked.turn, turn.attempt))

    def give_back(self) -> None:
        if (turn := self.some(placed=True)) is not None:
            reason = self.random.choice((ReturnReason.UNREACHABLE, ReturnReason.BUSY))
            self.send(TurnReturned(self.now, "d", turn.asked.turn, turn.attempt, turn.replica, reason))

    def end_run(self) -> None:
        self.send(RunEnded(self.now, self.random.choice(("r1", "r2", "r3"))))

    def ask_again(self) -> None:
        if (turn := self.some(placed=False)) is not None:
            self.send(replace(turn.asked, now=self.now, attempt=turn.attempt))

    def configure(self) -> None:
        r = self.random
        self.possible = tuple([
            replace(
                spec,
                url=f"http://elsewhere-{self.now}" if r.random() < 0.1 else spec.url,
                capped=spec.capped is not (r.random() < 0.2),
                max_in_flight=r.choice((0, 1, 5, None)) if r.random() < 0.2 else spec.max_in_flight,
            )
            for spec in self.possible
        ])
        self.configured = tuple([spec for spec in self.possible if r.random() < 0.7]) or self.possible[:1]
        self.send(ConfigChanged(self.now, self.configured))

    def look(self) -> None:
        self.probe(self.random.choice(self.configured))

    def probe(self, spec: ReplicaSpec) -> None:
        r = self.random
        luck = r.random() if self.flaky else 1.0
        if luck < 0.15:
            self.send(ReplicaProbed(self.now, spec.name, r.choice((ProbeOutcome.REFUSED, ProbeOutcome.MISSED))))
            return
        load = Load(max(0, self.oracle.flying(spec.name) + r.choice((-2, -1, 0, 0, 0, 1))), r.choice((0, 0, 0, 1, 5)))
        self.send(ReplicaProbed(self.now, spec.name, ProbeOutcome.OK, load if spec.capped and luck >= 0.2 else None))

    def wait(self) -> None:
        self.now += self.random.choice(PACES)
        self.send(Tick(self.now))

    def some(self, *, placed: bool) -> Any:
        turns = [turn for turn in self.oracle.turns.values() if bool(turn.replica) is placed]
        return self.random.choice(turns) if turns else None


def essence(decision: Decision) -> tuple[object, ...] | None:
    match decision:
        case Place():
            return ("place", decision.turn, decision.run, decision.replica)
        case Refuse():
            return ("refuse", decision.turn, decision.code)
        case Expire():
            return ("expire", decision.turn)
    return None


def in_order(told: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The order of places is part of the decision; that of refusals and expiries isn't."""
    return [said for said in told if said[0] == "place"] + sorted((said for said in told if said[0] != "place"), key=str)


@pytest.mark.parametrize("block", range(8))
def test_the_core_decides_what_a_naive_reading_of_the_rules_decides(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        Walk(seed).play()
