"""How would a log's turns have fared under other rules? In virtual time, with the core in the loop and a model of the engines.

A turn comes as long after the answer before it as in the log; the first of a run comes when it came. Replicas are always healthy, nobody
leaves, and runs are known by what the log says of them.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from msgspec.structs import replace

from luftpause.cli.replay_turns import Turn, Workload
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place, Refuse
from luftpause.scheduler.core.events import (
    Continue,
    Event,
    FirstToken,
    Kind,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    Resync,
    Tick,
    TurnFinished,
    TurnRequested,
    TurnStarted,
    Usage,
)
from luftpause.scheduler.core.settings import Settings
from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Finished, Gauges, Token

DATAPLANE: Final = "replay"
TICK_SECONDS: Final = 1.0
SLACK: Final = 20.0  # a simulation that takes so many times as long as the log is given up


@dataclass(eq=False)
class Fared:
    """How one turn fared; times on the log's clock. `refused`: the rules answered with an error."""

    turn: Turn
    arrived: float
    placed: float | None = None
    replica: str = ""
    first: float | None = None
    finished: float | None = None
    cached_tokens: int | None = None
    refused: bool = False


def recorded(turns: Sequence[Turn]) -> list[Fared]:
    """How they fared in the log."""
    return [Fared(turn, turn.arrived, turn.placed, turn.replica, turn.first, turn.finished, turn.cached_tokens) for turn in turns]


@dataclass
class World:
    """One simulation; `play` gives how each turn fared."""

    found: Workload
    settings: Settings
    params: EngineParams
    now: float = 0.0
    fared: dict[str, Fared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = count()
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        specs = tuple([spec for spec in self.found.replicas if spec.kind is Kind.GENERATIVE])
        self.specs = {spec.name: spec for spec in specs}
        self.engines = {name: Engine(self.params) for name in self.specs}
        self.slotted = {name for name, reports in self.found.loads.items() if any(each.load.slots for each in reports)}
        self.due: dict[str, float | None] = dict.fromkeys(self.specs)
        self.followers: dict[str, list[Turn]] = {}
        self.left = len(self.found.turns)
        self.now = min((turn.arrived for turn in self.found.turns), default=0.0) - TICK_SECONDS
        self.last = max((turn.finished for turn in self.found.turns), default=0.0)
        at_once = replace(self.settings, start_grace_seconds=0.0, dataplanes_expected=())
        self.state = initial(at_once, specs, self.now)
        self.tick_at = self.now

    def play(self) -> list[Fared]:
        """Raises nothing: turns that never got a place have no `placed`."""
        for turn in self.found.turns:
            if turn.after is None:
                self.at(turn.arrived, lambda turn=turn: self.ask(turn))
            else:
                self.followers.setdefault(turn.after.id, []).append(turn)
        until = self.last + SLACK * (self.last - self.now)
        self.tell(Resync(self.now, DATAPLANE, "1", "1"))
        self.probe()
        self.tick()
        while self.left and self.agenda and self.agenda[0][0] <= until:
            self.now, _, act = heapq.heappop(self.agenda)
            act()
            self.watch()
        return [self.fared.get(turn.id) or Fared(turn, turn.arrived) for turn in self.found.turns]

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (when, next(self.numbers), act))

    # ---- turns

    def ask(self, turn: Turn) -> None:
        self.fared[turn.id] = Fared(turn, self.now)
        self.tell(
            TurnRequested(
                self.now, DATAPLANE, turn.id, 1, turn.run, turn.model, turn.turn_class, turn.caller, turn.run, api=turn.api,
                head_digest=turn.head, arrived=self.now, principal=turn.principal, body_bytes=turn.body_bytes,
            )
        )  # fmt: skip

    def placed(self, place: Place) -> None:
        fared = self.fared[place.turn]
        fared.placed, fared.replica = self.now, place.replica
        turn = fared.turn
        self.advance(place.replica)
        refused = self.engines[place.replica].submit(self.now, EngineRequest(turn.id, turn.prompt, turn.answer))
        if refused:
            raise AssertionError(f"the engine model refused {refused}: its memory holds the longest turn")
        self.tell(TurnStarted(self.now, DATAPLANE, turn.id, 1))

    def advance(self, name: str) -> None:
        for output in self.engines[name].advance(self.now):
            match output:
                case Token(number=1, id=id_) if self.fared[id_].first is None:
                    self.fared[id_].first = self.now
                    self.tell(FirstToken(self.now, DATAPLANE, id_))
                case Finished():
                    self.at(self.now, lambda output=output: self.answered(output))
                case _:
                    pass

    def answered(self, output: Finished) -> None:
        fared = self.fared[output.id]
        fared.finished, fared.cached_tokens = self.now, output.cached_tokens
        turn = fared.turn
        usage = Usage(output.prompt_tokens, output.answer_tokens, output.cached_tokens)
        self.ended(turn)
        self.tell(TurnFinished(self.now, DATAPLANE, turn.id, 1, turn.finish_reason, usage, turn.paused))

    def ended(self, turn: Turn) -> None:
        """Those that follow it come as long after it as they did in the log."""
        self.left -= 1
        for follower in self.followers.get(turn.id, ()):
            self.at(self.now + follower.tool_seconds, lambda follower=follower: self.ask(follower))

    # ---- the scheduler

    def tell(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        wake = self.now + TICK_SECONDS if step.wake_at is None else max(step.wake_at, self.now + 0.001)
        if wake < self.tick_at:
            self.tick_at = wake
            self.at(wake, self.tick)
        for decision in step.decisions:
            match decision:
                case Place():
                    self.placed(decision)
                case Refuse(turn=id_):
                    self.fared[id_].refused = True
                    self.ended(self.fared[id_].turn)
                case _:
                    pass
        if step.more:
            self.at(self.now, lambda: self.tell(Continue(self.now)))

    def tick(self) -> None:
        if self.now < self.tick_at:
            return
        self.tick_at = self.now + TICK_SECONDS
        self.at(self.tick_at, self.tick)
        self.tell(Tick(self.now))

    def probe(self) -> None:
        for name, engine in self.engines.items():
            self.advance(name)
            spec = self.specs[name]
            load = self.load(name, engine.gauges()) if spec.capped and name in self.found.loads else None
            models = spec.models if spec.models is not None else self.found.models.get(name, ())
            self.tell(ReplicaProbed(self.now, name, ProbeOutcome.OK, load, models))
        self.at(self.now + self.settings.probe_seconds, self.probe)

    def load(self, name: str, gauges: Gauges) -> Load:
        """What an engine tells: its slots and no memory, if it told those when it was recorded."""
        if name in self.slotted:
            return Load(gauges.running, gauges.waiting, slots=self.params.running_max)
        return Load(gauges.running, gauges.waiting, gauges.kv_tokens, gauges.kv_used)

    def watch(self) -> None:
        """Wake when an engine's step ends."""
        for name, engine in self.engines.items():
            due = engine.next_event()
            if due is not None and due != self.due[name]:
                self.at(max(due, self.now), lambda name=name: self.advance(name))
            self.due[name] = due
