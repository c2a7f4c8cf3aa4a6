"""What did each run do lately (held, prefill, decode, tool, idle), and how busy was the whole?

An observer of the host: the state does not remember what was. A run's phase is read from the state after each step, so nothing is counted
that could go wrong; only the runs that an event or its decisions name are looked at. The newest runs are kept with their newest changes.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from msgspec import Struct

from luftpause.scheduler.core.decisions import Expire, Forget, Held, Place, Refuse, Step
from luftpause.scheduler.core.events import (
    Continue,
    DataplaneLost,
    Event,
    FirstToken,
    Resync,
    Tick,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)
from luftpause.scheduler.core.model import Run, State, Turn, TurnPhase
from luftpause.scheduler.core.view_held import CLASSES
from luftpause.scheduler.tally import Tally

RUNS_MAX: Final = 1000
CHANGES_MAX: Final = 48  # per run
SAMPLE_SECONDS: Final = 2.0
SAMPLES_MAX: Final = 450  # a quarter of an hour
DETAIL_CHARS_MAX: Final = 80
EVICTED_LOOKED_AT: Final = 4

_ONE_TURN: Final = (FirstToken, TurnRequested, TurnFinished, TurnAbandoned, TurnReturned, TurnFailed)
_QUIET: Final = frozenset({"idle", "over"})

T = TypeVar("T")


class Change(Struct, frozen=True, array_like=True, gc=False):
    """
    From `at_ms` on the run was in `phase`: held, prefill, decode, tool, idle or over (no longer known).

    `detail`: why it is held, the replica, the tools, or how the last turn ended.
    """

    at_ms: int
    phase: str
    detail: str


class RunLine(Struct, frozen=True, gc=False):
    """
    What one run did. `number` names it for as long as this scheduler lives.

    `changes` are those after the cursor that was asked for, oldest first.
    """

    number: int
    run: str
    parent: str
    caller: str
    turn_class: str
    model: str
    replica: str
    turns: int
    changes: list[Change]


class Sample(Struct, frozen=True, array_like=True, gc=False):
    """Every two seconds: turns held and in flight by class, and what was counted since the start."""

    at_ms: int
    held_interactive: int
    held_batch: int
    in_flight_interactive: int
    in_flight_batch: int
    placements: int
    turns_over: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Lately(Struct, frozen=True):
    """
    What changed since a cursor: give `cursor` back to be told what comes after.

    `since` is 0 where the cursor that was asked for is not of this scheduler: then this is all there is. `..._ms` count from its start.
    """

    scheduler_epoch: str
    since: int
    cursor: int
    now_ms: int
    runs: list[RunLine]  # that changed last first
    samples: list[Sample]  # oldest first


class Track:
    """One run's line while it is kept; `changes` with the number of each."""

    __slots__ = ("caller", "changes", "model", "number", "parent", "replica", "run", "seq", "streaming", "tools", "turn_class", "turns")

    def __init__(self, number: int, run: Run) -> None:
        self.number = number
        self.run = run.id
        self.parent = run.parent
        self.caller = run.caller
        self.turn_class = CLASSES[run.turn_class]
        self.model = self.replica = ""
        self.turns = run.turn_seq
        self.seq = 0
        self.changes: deque[tuple[int, Change]] = deque(maxlen=CHANGES_MAX)
        self.streaming: tuple[str, ...] = ()  # turns in flight whose first token has come
        self.tools = ""


class Timeline:
    """Call it as an `Observer`, after `tally`. `runs_max` lines are kept; of those that go, idle ones go first."""

    def __init__(self, tally: Tally, started: float, *, runs_max: int = RUNS_MAX) -> None:
        self._tally = tally
        self._started = started
        self._runs_max = runs_max
        self._tracks: OrderedDict[str, Track] = OrderedDict()  # by the run's key; that changed last is last
        self._keys: dict[str, tuple[str, ...]] = {}  # run id -> keys of the runs of that name (of different principals)
        self._seq = 0
        self._numbers = 0
        self._samples: deque[tuple[int, Sample]] = deque(maxlen=SAMPLES_MAX)
        self._sampled_at = float("-inf")
        self._resync: Resync | None = None  # whose turns are not in the state yet

    def __call__(self, before: State, event: Event, step: Step) -> None:
        if isinstance(event, Resync):
            self._resync = event
        if isinstance(event, _ONE_TURN):
            self._one(event.turn, before, event, step)
        elif isinstance(event, Tick):
            self._sample(event.now)
        if step.decisions:
            self._decided(before, event, step)
        if (self._resync is not None and not step.absorbing) or isinstance(event, DataplaneLost):
            self._all(event, step.state)

    def lately(self, epoch: str, now: float, since: int, runs: int) -> Lately:
        """What changed after the cursor `since`, of the `runs` that changed last."""
        since = since if since <= self._seq else 0
        lines: list[RunLine] = []
        for track in reversed(self._tracks.values()):
            if track.seq <= since or len(lines) >= runs:
                break
            lines.append(_line(track, since))
        samples = list(_after(self._samples, since))
        return Lately(epoch, since, self._seq, self._ms(now), lines, samples)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _one(self, id_: str, before: State, event: Event, step: Step) -> None:
        after = step.state
        turn = after.turns.get(id_) or before.turns.get(id_)
        if turn is None or not turn.run:
            return
        run = after.runs.get(turn.run)
        track = self._tracks.get(turn.run)
        if track is None:
            if run is None:
                return
            track = self._new(turn.run, run)
        track.model = turn.model
        if type(event) is FirstToken:
            track.streaming = (*(each for each in track.streaming if each != id_), id_)
        elif track.streaming:
            track.streaming = tuple(each for each in track.streaming if each != id_)
        if type(event) is TurnFinished and event.paused:
            track.tools = ", ".join(dict.fromkeys(event.tools))[:DETAIL_CHARS_MAX]
        self._look(turn.run, track, run, turn, event, after)

    def _decided(self, before: State, event: Event, step: Step) -> None:
        own = getattr(event, "turn", "")
        for decision in step.decisions:
            if isinstance(decision, Place | Held | Refuse | Expire):
                if decision.turn != own:
                    self._one(decision.turn, before, Continue(event.now), step)
            elif isinstance(decision, Forget):
                self._forgotten(decision.run, event, step)

    def _forgotten(self, run: str, event: Event, step: Step) -> None:
        for key in self._keys.get(run, ()):
            if key not in step.state.runs:
                self._note(key, self._tracks[key], event.now, "over", "")

    def _all(self, event: Event, state: State) -> None:
        """A session came or went: every line that is kept may have changed."""
        for key, track in list(self._tracks.items()):
            self._look(key, track, state.runs.get(key), None, event, state)
        if self._resync is not None:
            self._adopt(self._resync, event, state)
            self._resync = None

    def _adopt(self, resync: Resync, event: Event, state: State) -> None:
        """Turns that were in flight before this scheduler knew them."""
        for memory in resync.turns[-self._runs_max :]:
            turn = state.turns.get(memory.turn)
            run = state.runs.get(turn.run) if turn is not None else None
            if turn is None or run is None:
                continue
            track = self._tracks.get(run.key) or self._new(run.key, run)
            if memory.first_token:
                track.streaming += (turn.id,)
            track.model = turn.model
            self._look(run.key, track, run, turn, event, state)

    def _look(self, key: str, track: Track, run: Run | None, turn: Turn | None, event: Event, state: State) -> None:
        """Note the run's phase if it is another one than before."""
        if run is None:
            self._note(key, track, event.now, "over", "")
            return
        track.turns = run.turn_seq
        if run.in_flight:
            if turn is not None and turn.phase is TurnPhase.IN_FLIGHT and turn.id in state.turns:
                track.replica = turn.replica
            track.streaming = tuple(each for each in track.streaming if each in state.turns) if track.streaming else ()
            self._note(key, track, event.now, "decode" if track.streaming else "prefill", track.replica)
            return
        track.streaming = ()
        if run.held:
            self._note(key, track, event.now, "held", _reason(run, turn, state))
        elif run.phase == "paused":
            self._note(key, track, event.now, "tool", track.tools)
        else:
            self._note(key, track, event.now, "idle", _ending(event) or _last_detail(track, "idle"))

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def _new(self, key: str, run: Run) -> Track:
        if len(self._tracks) >= self._runs_max:
            self._evict()
        self._numbers += 1
        track = self._tracks[key] = Track(self._numbers, run)
        self._keys[run.id] = (*self._keys.get(run.id, ()), key)
        return track

    def _evict(self) -> None:
        """The line that has been quiet longest goes; one of a run that does nothing, if one is among the first."""
        gone = next(iter(self._tracks))
        for number, (key, track) in enumerate(self._tracks.items()):
            if number >= EVICTED_LOOKED_AT:
                break
            if not track.changes or track.changes[-1][1].phase in _QUIET:
                gone = key
                break
        run = self._tracks.pop(gone).run
        others = tuple(key for key in self._keys[run] if key != gone)
        if others:
            self._keys[run] = others
        else:
            del self._keys[run]

    def _note(self, key: str, track: Track, now: float, phase: str, detail: str) -> None:
        if track.changes:
            last = track.changes[-1][1]
            if last.phase == phase and last.detail == detail:
                return
        self._seq += 1
        track.seq = self._seq
        track.changes.append((self._seq, Change(self._ms(now), phase, detail)))
        self._tracks.move_to_end(key)

    def _sample(self, now: float) -> None:
        if now - self._sampled_at < SAMPLE_SECONDS:
            return
        self._sampled_at = now
        tally = self._tally
        held, in_flight = ([sum(each.values()) for each in by_class] for by_class in (tally.shares.held, tally.shares.in_flight))
        tokens = {"prompt": 0, "cached": 0, "completion": 0}
        for labels, count in tally.tokens.series().items():
            tokens[labels[-1]] = tokens.get(labels[-1], 0) + int(count)
        self._seq += 1
        sample = Sample(
            self._ms(now), *held, *in_flight,
            placements=int(sum(tally.placements.series().values())), turns_over=int(sum(tally.turns.series().values())),
            prompt_tokens=tokens["prompt"], cached_tokens=tokens["cached"], completion_tokens=tokens["completion"],
        )  # fmt: skip
        self._samples.append((self._seq, sample))

    def _ms(self, now: float) -> int:
        return round((now - self._started) * 1000)


def _reason(run: Run, turn: Turn | None, state: State) -> str:
    """Why the turn is held, or another one of the run where this one isn't."""
    if turn is None or turn.id not in run.held:
        turn = state.turns.get(next(iter(run.held)))
    reason = turn.reason if turn is not None else None
    return reason._value_ if reason is not None else ""


def _ending(event: Event) -> str:
    match event:
        case TurnFinished(finish_reason=reason):
            return reason[:DETAIL_CHARS_MAX] or "finished"
        case TurnFailed(reason=reason):
            return reason[:DETAIL_CHARS_MAX]
        case TurnAbandoned():
            return "abandoned"
        case _:
            return ""


def _last_detail(track: Track, phase: str) -> str:
    return track.changes[-1][1].detail if track.changes and track.changes[-1][1].phase == phase else ""


def _line(track: Track, since: int) -> RunLine:
    changes = list(_after(track.changes, since))
    return RunLine(
        track.number, track.run, track.parent, track.caller, track.turn_class, track.model, track.replica, track.turns, changes
    )  # fmt: skip


def _after(numbered: Iterable[tuple[int, T]], since: int) -> Iterator[T]:
    return (value for number, value in numbered if number > since)
