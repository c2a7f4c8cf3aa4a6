"""A small world that turns numbers into plausible events: dataplanes that ask, report, vanish and come back; replicas that fail and lie."""

from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Decision, Expire, Place, Refuse
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Continue,
    DataplaneAlive,
    DataplaneLost,
    Event,
    FirstToken,
    Kind,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    ReplicaUnusable,
    ResponseSeen,
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
    Usage,
)
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, RunMemory, ToolCallMemory, TurnMemory
from luftpause.scheduler.core.model import Health, Settings, State, Turn, TurnPhase
from luftpause.scheduler.core.runs import lane_of
from luftpause.scheduler.core.serving import serves
from luftpause_bench.sim.recount import placements, recount

SPECS = (
    ReplicaSpec("a", "http://a", models=("m", "n")),
    ReplicaSpec("b", "http://b", models=("m",), priority="vllm"),
    ReplicaSpec("c", "http://c", models=("m",), capped=False, max_in_flight=3),
    ReplicaSpec("k", "http://k", models=("judge",), kind=Kind.CLASSIFIER),
    ReplicaSpec("l", "http://l"),  # learns its models
    ReplicaSpec("w", "http://w", models=("n", "la*", "m")),
)
IDS = ("call_0", "call_1", "functions.search:7", "call_9f8e7d6c5b4a3f2e1d0c", "toolu_01AbCdEfGhIjKlMnOp", "")
RARE_OPS = ("config", "resync", "lost", "unusable", "end_run", "duplicate", "sent", "sent")
OPS = (
    "request", "request", "request", "request", "continue", "continue", "finish", "finish", "finish", "pause", "pause", "fail", "abandon",
    "return", "tool_call", "probe", "probe", "probe", "miss", "suspect", "alive", "tick", "token", "response", "again", *RARE_OPS,
)  # fmt: skip

STEPS_MAX = 2_000  # after one event; the tightest settings let a step do one thing


@dataclass
class World:
    settings: Settings
    specs: tuple[ReplicaSpec, ...] = SPECS
    now: float = 100.0
    serial: int = 0
    state: State = field(init=False)
    log: list[Event] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    live: set[str] = field(default_factory=set)  # turns that must not be lost
    requests: dict[str, TurnRequested] = field(default_factory=dict)
    sessions: dict[str, tuple[str, str]] = field(default_factory=dict)
    checks: bool = True

    def __post_init__(self) -> None:
        self.state = self.start()

    def start(self) -> State:
        return initial(self.settings, self.specs, 100.0)

    def send(self, event: Event) -> tuple[Decision, ...]:
        """One event, then `Continue` until the core has nothing more to do; checks every invariant after each step."""
        made: list[Decision] = []
        steps = 0
        while True:
            before = self.state
            step = decide(before, event)
            self.log.append(event)
            self.state = step.state
            made += step.decisions
            self.follow(event, step.decisions)
            if self.checks:
                self.check(before, event, step.decisions)
            if not step.more:
                break
            event = Continue(self.now)
            steps += 1
            assert steps < STEPS_MAX, "it never comes to rest"
        self.decisions += made
        return tuple(made)

    def follow(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        match event:
            case TurnRequested(turn=turn):
                self.live.add(turn)
            case TurnAbandoned(turn=turn) | TurnFinished(turn=turn) | TurnFailed(turn=turn):
                if turn not in self.state.turns:
                    self.live.discard(turn)
            case Resync() | DataplaneLost():
                self.live &= set(self.state.turns)
            case _:
                pass
        for decision in decisions:
            if isinstance(decision, Refuse | Expire):
                self.live.discard(decision.turn)

    def check(self, before: State, event: Event, decisions: tuple[Decision, ...]) -> None:
        recount(self.state)
        placed = [decision for decision in decisions if isinstance(decision, Place)]
        again = isinstance(event, TurnRequested) and event.turn in before.turns
        if not again:
            assert len({place.turn for place in placed}) == len(placed), "placed twice"
            for place in placed:
                known = before.turns.get(place.turn)
                assert known is None or known.phase is not TurnPhase.IN_FLIGHT or isinstance(event, TurnReturned), "placed twice at once"
            placements(before, self.state, placed)
            self.check_homes(before, event, placed)
        assert self.live == set(self.state.turns), f"lost {self.live - set(self.state.turns)}, made up {set(self.state.turns) - self.live}"

    def check_homes(self, before: State, event: Event, placed: list[Place]) -> None:
        """A generating or paused lane doesn't move while its home can serve."""
        touched = before.turns.get(getattr(event, "turn", ""))
        moved: set[tuple[str, str, str]] = set()  # a turn whose dataplane can't use the home took its lane elsewhere, within this step
        for place in placed:
            turn = self.state.turns[place.turn]
            if (turn.run, turn.model, place.replica) in moved:
                continue
            moved.add((turn.run, turn.model, place.replica))
            run = before.runs.get(turn.run)
            lane = lane_of(run, turn.model) if run else None
            if lane is None or not (lane.in_flight or lane.branches) or isinstance(event, RunEnded | Tick | Resync | Continue):
                continue
            if touched is not None and touched.run == turn.run:
                continue  # the lane itself changed by this event
            home = self.state.replicas.get(lane.home)
            if home is None or home.removed or home.health is not Health.HEALTHY or lane.home in turn.without:
                continue
            dataplane = self.state.dataplanes[turn.dataplane]
            if lane.home in dataplane.unusable or not serves(home, turn.kind, turn.model, turn.api) or turn.kept_home:
                continue
            assert place.replica == lane.home, f"{turn.run} moved from {lane.home} to {place.replica}"

    # ---- making events -------------------------------------------------------------------------------------------

    def apply(self, op: str, x: int, y: int, dt: float) -> None:
        self.now += dt
        self.send(Tick(self.now))  # what is due happens in a step of its own, so that the checks know what caused what
        event = getattr(self, f"make_{op}")(x, y)
        dataplane = self.state.dataplanes.get(getattr(event, "dataplane", ""))
        if dataplane is not None and not dataplane.connected and not isinstance(event, Resync):
            event = self.make_resync(x, "de".index(dataplane.name))  # a lost dataplane comes back before it says anything else
        if event is not None:
            self.send(event)

    def name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def pick(self, phase: TurnPhase | None, x: int) -> Turn | None:
        turns = sorted((turn for turn in self.state.turns.values() if phase is None or turn.phase is phase), key=lambda turn: turn.id)
        return turns[x % len(turns)] if turns else None

    def known_run(self, x: int) -> str:
        runs = sorted(run.id for run in self.state.runs.values())
        return runs[x % len(runs)] if runs else ""

    def make_request(self, x: int, y: int, **more: Any) -> TurnRequested:
        models = ("m", "m", "m", "n", "late", "z")
        kinds = (Kind.CLASSIFIER, "judge") if x % 11 == 10 else (Kind.EMBEDDING, "m") if x % 11 == 9 else (Kind.GENERATIVE, models[x % 6])
        made: dict[str, Any] = {
            "now": self.now, "dataplane": "de"[y % 2], "turn": self.name("t"), "attempt": 1, "fresh_run": self.name("r"),
            "model": kinds[1], "turn_class": TurnClass(y // 2 % 2), "caller": "uvw"[x // 3 % 3], "kind": kinds[0],
            "run": ("", "", "", "r-one", "r-two")[y // 3 % 5], "head_digest": (b"", b"d1", b"d2")[x // 5 % 3],
            "parent": self.known_run(y) if x % 2 else "", "body_bytes": (0, x * 80)[y % 2],
            "body_hash": (b"", b"h1")[y // 7 % 2], "principal": ("", "", "p")[y // 11 % 3],
        }  # fmt: skip
        request = TurnRequested(**(made | more))
        self.requests[request.turn] = request
        return request

    def make_sent(self, x: int, y: int) -> TurnRequested:
        """A single pass that went somewhere unasked; what its dataplane knew may be long over, or never was."""
        kind, model = (Kind.CLASSIFIER, "judge") if x % 2 else (Kind.EMBEDDING, "m")
        return self.make_request(x, y, kind=kind, model=model, sent_to=("k", "k", "a", "c", "l", "ghost")[y % 6])

    def make_continue(self, x: int, y: int) -> TurnRequested:
        ids = tuple(IDS[(x + shift) % len(IDS)] for shift in range(y % 3 + 1))
        return self.make_request(x, y, tool_call_ids=ids, previous_response="resp1" if x % 7 == 6 else "")

    def make_again(self, x: int, y: int) -> TurnRequested | None:
        turn = self.pick(None, x)
        if turn is None or turn.id not in self.requests:
            return None
        return replace(self.requests[turn.id], now=self.now, attempt=max(1, turn.attempt - y % 3 + 1), dataplane=turn.dataplane)

    def make_finish(self, x: int, y: int) -> TurnFinished | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        return TurnFinished(self.now, turn.dataplane, turn.id, turn.attempt, usage=self.usage(x, y)) if turn else None

    def usage(self, x: int, y: int) -> Usage | None:
        cached = (None, 0, x * 10, x * 19)[y % 4]
        return Usage(x * 20, y % 30, cached) if (x + y) % 4 else None

    def make_pause(self, x: int, y: int) -> TurnFinished | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        return (
            TurnFinished(
                self.now, turn.dataplane, turn.id, turn.attempt, usage=self.usage(x, y), paused=True, tool_call_ids=(IDS[y % len(IDS)],),
                tools=(("search",), (), ("search", "slow"))[x % 3],
            )
            if turn
            else None
        )  # fmt: skip

    def make_tool_call(self, x: int, y: int) -> ToolCallSeen | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        return ToolCallSeen(self.now, turn.dataplane, turn.id, (IDS[y % len(IDS)], IDS[(y + x) % len(IDS)])) if turn else None

    def make_response(self, x: int, y: int) -> ResponseSeen | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        return ResponseSeen(self.now, turn.dataplane, turn.id, f"resp{y % 2}") if turn else None

    def make_token(self, x: int, y: int) -> Event | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        if turn is None:
            return None
        return FirstToken(self.now, turn.dataplane, turn.id) if y % 2 else TurnStarted(self.now, turn.dataplane, turn.id, turn.attempt)

    def make_fail(self, x: int, y: int) -> TurnFailed | None:
        turn = self.pick(None, x)
        return TurnFailed(self.now, turn.dataplane, turn.id, turn.attempt, ("client_left", "engine_died", "odd")[y % 3]) if turn else None

    def make_abandon(self, x: int, y: int) -> TurnAbandoned | None:
        turn = self.pick(None, x)
        return TurnAbandoned(self.now, turn.dataplane, turn.id, turn.attempt) if turn else None

    def make_return(self, x: int, y: int) -> TurnReturned | None:
        turn = self.pick(TurnPhase.IN_FLIGHT, x)
        reason = (ReturnReason.UNREACHABLE, ReturnReason.BUSY, ReturnReason.LIMITED)[y % 3]
        return TurnReturned(self.now, turn.dataplane, turn.id, turn.attempt, turn.replica, reason) if turn else None

    def make_duplicate(self, x: int, y: int) -> Event | None:
        return self.log[-1 - x % min(len(self.log), 20)] if self.log and type(self.log[-1 - x % min(len(self.log), 20)]) in {
            FirstToken, ToolCallSeen, TurnStarted, TurnReturned, Tick, ReplicaProbed,
        } else None  # fmt: skip

    def make_probe(self, x: int, y: int) -> ReplicaProbed:
        load = None if y % 9 == 8 else Load(running=x % 5, waiting=y % 3, kv_tokens=(None, 600, 2000, 600)[y % 4])
        return ReplicaProbed(self.now, "abcklw"[x % 6], ProbeOutcome.OK, load, ("m", "late") if "abcklw"[x % 6] == "l" else None)

    def make_miss(self, x: int, y: int) -> ReplicaProbed:
        return ReplicaProbed(self.now, "abcklw"[x % 6], (ProbeOutcome.MISSED, ProbeOutcome.MISSED, ProbeOutcome.REFUSED)[y % 3])

    def make_suspect(self, x: int, y: int) -> ReplicaSuspected:
        return ReplicaSuspected(self.now, "de"[y % 2], "abc"[x % 3])

    def make_unusable(self, x: int, y: int) -> ReplicaUnusable:
        return ReplicaUnusable(self.now, "de"[y % 2], "abc"[x % 3], "no key")

    def make_alive(self, x: int, y: int) -> DataplaneAlive:
        name = "de"[y % 2]
        mine = tuple(sorted(turn.id for turn in self.state.turns.values() if turn.dataplane == name))
        return DataplaneAlive(self.now, name, mine if x % 2 else None, ("abc"[x % 3],))

    def make_tick(self, x: int, y: int) -> Tick:
        self.now += (0.02, 1.0, 2.5, 35.0, 130.0, 700.0, 2000.0)[x % 7]
        return Tick(self.now)

    def make_end_run(self, x: int, y: int) -> RunEnded | None:
        runs = sorted(self.state.runs.values(), key=lambda run: run.key)
        run = runs[x % len(runs)] if runs else None
        ended = (None, self.now, self.now - 0.5, self.now - 40.0)[y % 4]
        return RunEnded(self.now, run.id, run.principal, ended) if run and y % 5 else RunEnded(self.now, "r-one", "", ended)

    def make_config(self, x: int, y: int) -> ConfigChanged:
        specs = tuple(replace(spec, url=f"http://{spec.name}-{y}") if y % 4 == 3 and spec.name in "ab" else spec for spec in self.specs)
        kept = tuple(spec for number, spec in enumerate(specs) if not x >> number & 1)
        return ConfigChanged(self.now, kept or self.specs[:1])

    def make_lost(self, x: int, y: int) -> DataplaneLost:
        name = "de"[y % 2]
        return DataplaneLost(self.now, name, self.sessions.get(name, ("s0", ""))[0] if x % 3 else "older")

    def make_resync(self, x: int, y: int) -> Resync:
        name = "de"[y % 2]
        boot = self.sessions.get(name, ("", "boot"))[1] if x % 3 else self.name("boot")
        self.sessions[name] = (self.name("s"), boot)
        turns = [turn for turn in self.state.turns.values() if turn.dataplane == name and turn.phase is TurnPhase.IN_FLIGHT]
        kept = sorted(turns, key=lambda turn: turn.id)[x % 2 :]
        memories = tuple(
            TurnMemory(
                turn.id, turn.attempt, turn.run_id, turn.model, turn.replica, turn.turn_seq, turn.turn_class, turn.caller, turn.placed,
                Kind(turn.kind), principal=turn.principal, fence=turn.quota.fence if turn.quota is not None else 0,
            )
            for turn in kept
        )  # fmt: skip
        lane = LaneMemory("m", "abc"[x % 3], y % 4, (PausedBranch((IDS[y % 5],), self.now - y),) if y % 3 else ())
        run = RunMemory(
            "r-one", TurnClass(x % 2), "u", y % 4, self.now - 1, "", (lane,), (ToolCallMemory(IDS[x % 5], b"d1", self.now - x % 50),)
        )
        self.live |= {memory.turn for memory in memories}
        return Resync(self.now, name, self.sessions[name][0], boot, (run,) if x % 5 else (), memories)

    # ---- the end -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Every turn ends and every memory expires."""
        self.send(ConfigChanged(self.now, self.specs))
        for _ in range(20):
            for spec in self.specs:
                self.send(ReplicaProbed(self.now, spec.name, ProbeOutcome.OK, Load(0, 0), ("late",)))
            for turn in sorted(self.state.turns.values(), key=lambda turn: turn.id):
                self.send(TurnFailed(self.now, turn.dataplane, turn.id, turn.attempt, "client_left"))
        self.now += 90_000.0
        self.send(Tick(self.now))
        for _ in range(3):
            self.now += 2_000.0
            self.send(Tick(self.now))


def digest_of_a_long_run(seed: int, steps: int) -> str:
    """Number of decisions and a digest of them all, for a run of random events."""
    chance = Random(seed)
    limits = Settings(start_grace_seconds=0.0, batch_min_share=0.3, hold_seconds_max=20.0, held_turns_max=40, held_turns_per_caller_max=20)
    world = World(limits if seed % 2 else Settings(start_grace_seconds=0.0), checks=False)
    for _ in range(steps):
        world.apply(chance.choice(OPS), chance.randrange(61), chance.randrange(61), chance.choice((0.0, 0.005, 0.3, 2.0)))
    return f"{len(world.decisions)} {blake2b(repr(world.decisions).encode()).hexdigest()}"
