"""What would the specification decide? Admission, order and identity in plain dicts, recounted for every question.

Written from spec and decision records only, for one connected dataplane, generative turns and whole seconds.
"""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import floor

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
    TurnStarted,
)  # fmt: skip
from luftpause.scheduler.core.model import Settings
from tests.properties.scheduler_oracle_memory import Branch, Lane, Memory, Run, Turn

BATCH = TurnClass.BATCH
ENDLESS = float("inf")


@dataclass
class Engine:
    spec: ReplicaSpec
    health: str = "unknown"
    misses: int = 0
    running: int = 0
    waiting: int = 0
    reported: float | None = None  # when the last load came
    lost: bool = False  # the last good probe had no load, though there was one before
    queue_cap: int | None = None
    seen: int = 0  # generative turns that were in flight at the last report
    coming: list[float] = field(default_factory=list[float])  # when turns were placed since then, while nothing capped it
    refused: bool = False  # since the last good probe
    rests: bool = False
    owed: float = 0.0  # to batch
    peak: int = 0  # most that were in flight or reserved when a turn ended, since the last report


class Oracle:
    def __init__(self, settings: Settings, specs: tuple[ReplicaSpec, ...]) -> None:
        self.settings = settings
        self.now = 0.0
        self.engines = {spec.name: Engine(spec) for spec in specs}
        self.runs: dict[str, Run] = {}
        self.turns: dict[str, Turn] = {}
        self.memory = Memory(settings.tool_call_memory_seconds)
        self.left: list[tuple[float, str, str, bytes, float]] = []  # abandoned while held: when, run, caller, body, arrival
        self.urls = {spec.name: spec.url for spec in specs}
        self.ended: dict[str, float] = {}
        self.serial = 0
        self.said: list[tuple[object, ...]] = []

    def decide(self, event: Event) -> list[tuple[object, ...]]:
        self.now = event.now
        self.said = []
        self.expire()
        self.absorb(event)
        for name in list(self.turns):
            self.refuse_hopeless(name)
        self.settle()
        if isinstance(event, TurnRequested):
            self.refuse_too_many(event)
        if isinstance(event, TurnReturned):
            self.refuse_too_late(event.turn, self.now)
        return self.said

    def absorb(self, event: Event) -> None:  # noqa: C901  (one per event)
        match event:
            case TurnRequested():
                self.request(event)
            case TurnAbandoned():
                self.abandon(event)
            case TurnReturned():
                self.give_back(event)
            case ToolCallSeen():
                if (turn := self.turns.get(event.turn)) and turn.replica:
                    self.memory.remember(turn, event.ids, self.now)
            case TurnFinished() | TurnFailed():
                self.end(event)
            case RunEnded():
                self.end_run(event.run)
            case ReplicaProbed():
                self.probed(event)
            case ConfigChanged():
                self.configure(event.replicas)
            case Tick() | Resync() | TurnStarted():
                pass
            case _:
                raise AssertionError(event)

    # ---- identity ---------------------------------------------------------------------------------------------

    def request(self, event: TurnRequested) -> None:
        asked = self.turns.get(event.turn)
        if asked is not None and event.attempt == asked.attempt:  # one turn id is one turn
            self.said.append(("place", event.turn, asked.run, asked.replica) if asked.replica else ("held", event.turn, asked.run))
            return
        name = event.run or self.memory.recognise(event, self.runs, self.now) or event.fresh_run
        if not any(self.serves(engine, event.model) for engine in self.engines.values()):
            self.said.append(("refuse", event.turn, "model_not_found"))
            return
        if event.run and event.arrived < self.ended.get(name, 0.0):  # a former life's
            self.said.append(("refuse", event.turn, "run_ended"))
            return
        run = self.runs.setdefault(name, Run(name, self.now))
        run.seen, run.ended = self.now, False
        self.serial += 1
        turn = Turn(event, event.attempt, name, min(event.arrived, self.inherited(event, name)), self.serial, set(event.without))
        self.turns[event.turn] = turn
        self.memory.remember(turn, event.tool_call_ids, self.now, asked=True)

    def inherited(self, event: TurnRequested, run: str) -> float:
        recent = [left for left in self.left if self.now - left[0] < self.settings.inherit_seconds]
        same_body = [left for left in recent if event.body_hash and left[2:4] == (event.caller, event.body_hash)]
        for left in (*same_body, *(left for left in recent if left[1] == run)):
            self.left.remove(left)
            return left[4]
        return ENDLESS

    # ---- ends -------------------------------------------------------------------------------------------------

    def abandon(self, event: TurnAbandoned) -> None:
        turn = self.turns.get(event.turn)
        if turn is None or turn.attempt != event.attempt:
            return
        if not turn.replica:
            self.left.append((self.now, turn.run, turn.asked.caller, turn.asked.body_hash, turn.arrived))
        self.drop(event.turn)

    def give_back(self, event: TurnReturned) -> None:
        turn = self.turns.get(event.turn)
        if turn is None or turn.attempt != event.attempt or turn.replica != event.replica:
            return
        self.engines_forget(event.turn)
        turn.replica = ""
        turn.attempt += 1
        if event.reason is ReturnReason.UNREACHABLE:
            turn.without.add(event.replica)
            turn.bound = "" if turn.bound == event.replica else turn.bound
            return
        turn.bound = turn.bound or (event.replica if turn.only == event.replica else "")
        lane = self.runs[turn.run].lanes.get(turn.asked.model) if turn.run in self.runs else None
        turn.returned = turn.resumes and lane is not None and lane.home == event.replica
        engine, flying = self.engines.get(event.replica), self.flying(event.replica)
        if engine is not None:
            engine.queue_cap = max(1, flying if engine.queue_cap is None else min(flying, engine.queue_cap))
            engine.rests, engine.refused, engine.peak = flying == 0, True, 0

    def end(self, event: TurnFinished | TurnFailed) -> None:
        turn = self.turns.get(event.turn)
        if turn is None or turn.attempt != event.attempt or not turn.replica:
            return
        ids = event.tool_call_ids if isinstance(event, TurnFinished) else ()
        self.memory.remember(turn, ids, self.now)
        run = self.runs[turn.run]
        self.drop(event.turn)
        if isinstance(event, TurnFinished) and event.paused and not turn.followed and not run.ended:
            branch = Branch(ids, turn.asked.head_digest, self.now, turn.asked.turn_class)
            run.lanes[turn.asked.model].branches.append(branch)

    def drop(self, name: str) -> None:
        self.engines_forget(name)
        turn = self.turns.pop(name)
        run = self.runs.get(turn.run)
        if run is None:
            return
        run.seen = self.now
        if (run.ended or not run.lanes) and not any(other.run == run.name for other in self.turns.values()):
            self.forget(run.name)

    def engines_forget(self, name: str) -> None:
        for each, engine in self.engines.items():
            if self.turns[name].replica == each:
                engine.peak = max(engine.peak, self.flying(each) + self.reserved(each))

    def end_run(self, name: str) -> None:
        for turn in [t for t, turn in self.turns.items() if turn.run == name and not turn.replica]:
            self.said.append(("refuse", turn, "run_ended"))
            self.drop(turn)
        self.ended[name] = self.now
        if name in self.runs:
            self.memory.forget(name)
            self.runs[name].ended = True
            for lane in self.runs[name].lanes.values():
                lane.branches = []
            if not any(turn.run == name for turn in self.turns.values()):
                self.forget(name)

    def forget(self, name: str) -> None:
        self.memory.forget(name)
        del self.runs[name]

    def expire(self) -> None:
        for name, turn in list(self.turns.items()):
            if turn.replica and self.now - turn.placed >= self.settings.turn_timeout_seconds:
                self.said.append(("expire", name))
                self.drop(name)
            self.refuse_too_late(name, floor(self.now))
        busy = {turn.run for turn in self.turns.values()}
        for name, run in list(self.runs.items()):
            if name not in busy and self.now - run.seen >= self.settings.run_idle_seconds:
                self.forget(name)

    def refuse_too_many(self, event: TurnRequested) -> None:
        turn = self.turns.get(event.turn)
        if turn is None or turn.replica or turn.asked is not event or turn.attempt > 1:
            return
        others = [t for t in self.turns.values() if not t.replica and t is not turn]
        settings, mine = self.settings, [t for t in others if t.asked.caller == event.caller]
        if settings.held_turns_per_caller_max is not None and len(mine) >= settings.held_turns_per_caller_max:
            self.said.append(("refuse", event.turn, "caller_held_too_many"))
            self.drop(event.turn)
        elif settings.held_turns_max is not None and len(others) >= settings.held_turns_max:
            self.said.append(("refuse", event.turn, "too_many_held"))
            self.drop(event.turn)

    def refuse_too_late(self, name: str, now: float) -> None:
        turn, most = self.turns.get(name), self.settings.hold_seconds_max
        if turn is not None and not turn.replica and most is not None and turn.asked.arrived + most <= now:
            self.said.append(("refuse", name, "held_too_long"))
            self.drop(name)

    def refuse_hopeless(self, name: str) -> None:
        turn = self.turns[name]
        serving = [n for n, engine in self.engines.items() if self.serves(engine, turn.asked.model)]
        left = [n for n in serving if n not in turn.without and self.engines[n].health != "unhealthy"]
        if not turn.replica and (not serving or (turn.without and not left)):
            self.said.append(("refuse", name, "engine_unreachable" if serving else "model_not_found"))
            self.drop(name)

    # ---- engines ----------------------------------------------------------------------------------------------

    def configure(self, specs: tuple[ReplicaSpec, ...]) -> None:
        known = self.engines
        self.engines = {spec.name: replace(known[spec.name], spec=spec) if spec.name in known else Engine(spec) for spec in specs}
        for name, engine in self.engines.items():
            if self.urls.setdefault(name, engine.spec.url) != engine.spec.url:
                self.urls[name] = engine.spec.url
                self.engines[name] = Engine(engine.spec)
                self.homeless(name)
            elif name in known and known[name].spec.capped != engine.spec.capped:
                self.engines[name] = Engine(engine.spec, engine.health, engine.misses, owed=engine.owed)

    def homeless(self, name: str) -> None:
        """What was at this name's former URL is gone."""
        for lane in (lane for run in self.runs.values() for lane in run.lanes.values()):
            lane.home = lane.home if lane.home != name else ""
        for turn in self.turns.values():
            turn.bound = turn.bound if turn.bound != name else ""
            turn.only = turn.only if turn.only != name else ""

    def probed(self, event: ReplicaProbed) -> None:
        engine = self.engines.get(event.replica)
        if engine is None:
            return
        if event.outcome is not ProbeOutcome.OK:
            engine.misses += 1
            if event.outcome is ProbeOutcome.REFUSED or engine.misses >= self.settings.probe_misses_max:
                engine.health = "unhealthy"
            return
        engine.misses, engine.health, engine.rests, engine.seen = 0, "healthy", False, self.flying(event.replica)
        load = event.load if engine.spec.capped else None
        self.reported(event.replica, load)
        engine.peak, engine.refused, engine.coming = 0, False, []

    def reported(self, name: str, load: Load | None) -> None:
        engine = self.engines[name]
        if load is None:
            engine.lost = engine.reported is not None
            if not engine.lost:
                self.release(name, None)
            return
        coming = [at for at in engine.coming if self.now - at <= 0.1] if engine.queue_cap is None else []
        if load.waiting > len(coming[-8:]):
            before = engine.queue_cap
            engine.queue_cap = max(1, load.running)
            if engine.refused and before is not None:
                engine.queue_cap = min(engine.queue_cap, before + (self.flying(name) >= before))
        else:
            self.release(name, load.running)
        engine.running, engine.waiting = load.running, load.waiting
        engine.reported, engine.lost = self.now, False

    def release(self, name: str, running: int | None) -> None:
        engine = self.engines[name]
        if engine.queue_cap is not None and engine.refused:
            engine.queue_cap += self.flying(name) >= engine.queue_cap
        elif engine.queue_cap is None or self.settings.cap_release == "at_once":
            engine.queue_cap = None
        else:
            paused, flying, cap = self.reserved(name), self.flying(name), engine.queue_cap
            binds = max(engine.peak, flying + paused) >= cap
            quiet = running is not None and running <= cap / 2 and flying <= cap / 2
            engine.queue_cap = (min(cap * 2, paused + 1) if quiet and paused >= cap else cap + 1) if binds else None

    def cap(self, name: str) -> float:
        engine = self.engines[name]
        cap: float = ENDLESS if engine.queue_cap is None else engine.queue_cap
        if self.load_unknown(engine) and engine.queue_cap is None:
            cap = self.settings.load_unknown_cap
        return min(cap, ENDLESS if engine.spec.max_in_flight is None else engine.spec.max_in_flight)

    def load_unknown(self, engine: Engine) -> bool:
        too_old = self.settings.load_stale_periods * self.settings.probe_seconds
        return engine.lost or (engine.reported is not None and self.now - engine.reported >= too_old)

    def burst_left(self, name: str) -> float:
        engine = self.engines[name]
        most = self.settings.burst_turns_max
        if engine.reported is None or most == 0 or self.load_unknown(engine):
            return ENDLESS
        return (max(8, engine.running) if most is None else most) - (self.flying(name) - engine.seen)

    def flying(self, name: str) -> int:
        return sum(turn.replica == name for turn in self.turns.values())

    def reserved(self, name: str) -> int:
        most = self.settings.reserve_seconds_max or ENDLESS
        lanes = [lane for run in self.runs.values() for lane in run.lanes.values() if lane.home == name]
        return sum(b.turn_class is TurnClass.INTERACTIVE and self.now - b.since < most for lane in lanes for b in lane.branches)

    def room(self, name: str, turn: Turn) -> float:
        return self.cap(name) - self.flying(name) - (self.reserved(name) if turn.asked.turn_class is BATCH else 0)

    def admits(self, name: str, turn_class: TurnClass) -> bool:
        if self.engines[name].rests and self.flying(name) == 0:
            return False
        kept = self.reserved(name) if turn_class is BATCH else 0
        return self.cap(name) - self.flying(name) - kept > 0 and self.burst_left(name) > 0

    def serves(self, engine: Engine, model: str) -> bool:
        return engine.spec.models is not None and any(fnmatchcase(model, name) for name in engine.spec.models)

    # ---- placing ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        while True:
            if self.place_owed():
                continue
            for name in sorted((n for n, t in self.turns.items() if not t.replica), key=self.rank):
                replica = self.choose(self.turns[name])
                if replica:
                    self.place(name, replica)
                    break
            else:
                return

    def place_owed(self) -> bool:
        """`batch_min_share`: where a place is owed to batch, the first batch turn that could go there goes, though places are reserved."""
        for replica, engine in self.engines.items():
            if self.settings.batch_min_share and engine.owed + self.settings.batch_min_share >= 1 - 1e-9:
                for name in sorted((n for n, t in self.turns.items() if not t.replica and t.asked.turn_class is BATCH), key=self.rank):
                    if replica in self.able(self.turns[name]) and self.admits(replica, TurnClass.INTERACTIVE):
                        self.place(name, replica)
                        return True
        return False

    def rank(self, name: str) -> tuple[object, ...]:
        turn = self.turns[name]
        flying = sum(bool(t.replica) and t.asked.caller == turn.asked.caller for t in self.turns.values())
        return (turn.asked.turn_class, flying, turn.arrived, turn.serial)

    def able(self, turn: Turn) -> list[str]:
        """Where it may go as soon as there is room."""
        model, without = turn.asked.model, turn.without
        hoped = [n for n, e in self.engines.items() if e.health != "unhealthy" and self.serves(e, model) and n not in without]
        able = [name for name in hoped if self.engines[name].health == "healthy"]
        run = self.runs.get(turn.run)
        lane = run.lanes.get(model) if run else None
        home = lane.home if lane else ""
        generating = any(t.replica and t.run == turn.run and t.asked.model == model for t in self.turns.values())
        returned = any(t.returned and t.run == turn.run and t.asked.model == model for t in self.turns.values())
        only = home if lane and (generating or lane.branches or returned) else turn.bound
        turn.only = only if self.settings.stickiness == "strict" else ""
        if turn.only in hoped:
            able = [only] if only in able else []  # one that has not been probed yet is waited for
        return able

    def choose(self, turn: Turn) -> str:
        able = self.able(turn)
        run = self.runs.get(turn.run)
        lane = run.lanes.get(turn.asked.model) if run else None
        home = lane.home if lane else ""
        if self.settings.stickiness == "strict" and home in able and self.admits(home, turn.asked.turn_class):
            return home
        able = [name for name in able if self.admits(name, turn.asked.turn_class)]
        order = list(self.engines)
        return max(able, key=lambda n: (self.room(n, turn), -self.flying(n), -order.index(n)), default="")

    def place(self, name: str, replica: str) -> None:
        turn = self.turns[name]
        self.count_share(turn, replica)
        turn.replica, turn.placed = replica, self.now
        engine = self.engines[replica]
        free = engine.queue_cap is None and engine.reported is not None and not self.load_unknown(engine)
        engine.coming = [*engine.coming, self.now] if free and self.settings.cap_release == "stepwise" else []
        run = self.runs.setdefault(turn.run, Run(turn.run, self.now))
        run.seq += 1
        lane = run.lanes.setdefault(turn.asked.model, Lane())
        lane.home = replica
        self.said.append(("place", name, turn.run, replica))
        paused = len(lane.branches)
        self.end_branches(run, lane, turn)
        turn.resumes = turn.only == replica and (turn.returned or len(lane.branches) < paused)
        turn.returned = False

    def count_share(self, turn: Turn, replica: str) -> None:
        engine, share = self.engines[replica], self.settings.batch_min_share
        waiting = [t for t in self.turns.values() if not t.replica and t.asked.turn_class is BATCH and replica in self.able(t)]
        if turn.asked.turn_class is BATCH:
            engine.owed = max(0.0, engine.owed + share - 1)
        elif waiting:
            engine.owed = min(1.0, engine.owed + share)

    def end_branches(self, run: Run, lane: Lane, turn: Turn) -> None:
        carried = set(turn.asked.tool_call_ids)
        heads_fit = lambda a, b: not a or not b or a == b  # noqa: E731
        for each in run.lanes.values():
            each.branches = [b for b in each.branches if not carried & set(b.ids)]
        lane.branches = [b for b in lane.branches if (carried and b.ids) or not heads_fit(b.head, turn.asked.head_digest)]
