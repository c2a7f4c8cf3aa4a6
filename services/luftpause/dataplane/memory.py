"""What does this dataplane remember of the runs it has seen, for a scheduler that starts anew?

Times are seconds on the caller's clock and come in as `now`. A method that names an unknown turn changes nothing. Names and ids come in
as `wire` lets them through.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from luftpause.dataplane.turns import Ask, Kind, TurnClass

TOOL_CALLS_MAX: Final = 256  # the newest of a run
RESPONSES_MAX: Final = 64  # the newest of a run
BRANCHES_MAX: Final = 64  # the newest of a lane


class Branch(Struct, frozen=True, gc=False):
    """An answer that ended in tool calls and has not been followed by a turn that carries one of `ids`."""

    ids: tuple[str, ...]
    since: float
    head_digest: bytes = b""


class Lane(Struct, gc=False):
    """The turns of one run with one model."""

    home: str
    turn_seq: int
    ended: float
    paused: tuple[Branch, ...] = ()


class Run(Struct, gc=False):
    id: str
    principal: str
    turn_class: TurnClass
    caller: str
    parent: str
    seen: float
    placed: float  # when a turn of it last had a place
    turn_seq: int = 0
    in_flight: int = 0
    lanes: dict[str, Lane] = {}  # by model
    tool_calls: dict[str, tuple[bytes, float]] = {}  # id -> (head digest, seen), oldest first
    responses: dict[str, tuple[str, float]] = {}  # id -> (replica, seen), oldest first
    fell: dict[str, str] = {}  # model that its requests name -> model it goes on with


class InFlight(Struct, gc=False):
    """A turn that has a place and has not ended."""

    attempt: int
    run: str
    model: str
    replica: str
    turn_seq: int
    kind: Kind
    turn_class: TurnClass
    caller: str
    principal: str
    head_digest: bytes
    placed: float
    owner: Run | None  # None: outside run state
    home_before: str
    followed: tuple[tuple[str, Branch], ...] = ()  # paused branches that it ended, with their models
    first_token: bool = False
    tool_call_ids: tuple[str, ...] = ()
    fence: int = 0  # of its lease


class Watcher(Protocol):
    """Wants to see a run as it is before it changes (a snapshot that is being written)."""

    def before_change(self, key: str, run: Run) -> None: ...


def run_key(run: str, principal: str) -> str:
    """Run ids are scoped by principal."""
    return f"{principal}\x1f{run}" if principal else run


class Memory:
    """Runs with lanes, homes, paused branches and ids; turns in flight. `runs` is by `run_key`, longest unseen first."""

    def __init__(self, *, seconds: float, runs_max: int) -> None:
        self.runs: OrderedDict[str, Run] = OrderedDict()
        self.in_flight: dict[str, InFlight] = {}
        self.watcher: Watcher | None = None
        self.seconds = seconds
        self._runs_max = runs_max

    def placed(
        self, now: float, ask: Ask, *, attempt: int, run: str, replica: str, turn_seq: int, fence: int = 0, model: str = ""
    ) -> None:  # fmt: skip
        """The turn has a place. Only generative turns have run state. `model`: that it goes on with, if it does not name it."""
        known, home_before, followed = None, "", ()
        lane = model or ask.model
        if ask.kind is Kind.GENERATIVE:
            known = self._touch(now, run, ask)
            known.in_flight += 1
            known.turn_seq = max(known.turn_seq, turn_seq)
            home_before = _move(known, lane, replica, turn_seq, now)
            followed = _resume(known, ask, lane)
            if model:
                known.fell[ask.model] = model
            if ask.tool_call_ids:
                _remember(known, ask.tool_call_ids[::-1], ask.head_digest, now)
        self.in_flight[ask.turn] = InFlight(
            attempt,
            run,
            lane,
            replica,
            turn_seq,
            ask.kind,
            ask.turn_class,
            ask.caller,
            ask.principal,
            ask.head_digest,
            now,
            known,
            home_before,
            followed,
            fence=fence,
        )

    def first_token(self, turn: str) -> None:
        if record := self.in_flight.get(turn):
            record.first_token = True

    def tool_calls_seen(self, now: float, turn: str, ids: Sequence[str]) -> None:
        record = self.in_flight.get(turn)
        if record is None or (run := self._known(now, record)) is None:
            return
        record.tool_call_ids += tuple(ids)
        _remember(run, ids, record.head_digest, now)

    def response_seen(self, now: float, turn: str, response: str) -> None:
        record = self.in_flight.get(turn)
        if record is None or (run := self._known(now, record)) is None:
            return
        run.responses.pop(response, None)
        run.responses[response] = (record.replica, now)
        _trim(run.responses, RESPONSES_MAX)

    def finished(self, now: float, turn: str, *, paused: bool, tool_call_ids: Sequence[str] = ()) -> None:
        """The answer is complete; `paused`: it ended in tool calls."""
        record = self.in_flight.pop(turn, None)
        if record is None or (run := self._known(now, record)) is None:
            return
        run.in_flight -= 1
        if (lane := run.lanes.get(record.model)) is None:
            return
        lane.ended = now
        if paused:
            ids = tuple(tool_call_ids) or record.tool_call_ids
            _remember(run, ids, record.head_digest, now)
            lane.paused = (*lane.paused[1 - BRANCHES_MAX :], Branch(ids[:TOOL_CALLS_MAX], now, record.head_digest))

    def failed(self, now: float, turn: str) -> None:
        """It ended any other way: the run becomes idle, never paused."""
        self.finished(now, turn, paused=False)

    def withdrawn(self, now: float, turn: str, *, held_again: bool = True) -> None:
        """The place was given back before the replica took the turn: the run's home is where it was.

        `held_again`: the turn will have another place, and until then its run is paused as before; else its client has left.
        """
        record = self.in_flight.pop(turn, None)
        if record is None or (run := self._known(now, record)) is None:
            return
        run.in_flight -= 1
        if held_again:
            _pause_again(run, record.followed)
        lane = run.lanes.get(record.model)
        if lane is not None and lane.turn_seq == record.turn_seq:
            lane.home = record.home_before
            if not lane.home and not lane.paused:
                del run.lanes[record.model]

    def followed_elsewhere(self, run: str, principal: str, model: str, ids: Sequence[str]) -> None:
        """The branch with one of these ids is no longer paused; without ids: those of the lane that have none."""
        key = run_key(run, principal)
        known = self.runs.get(key)
        lane = known.lanes.get(model) if known is not None else None
        if known is None or lane is None:
            return
        self._watch(key, known)
        followed = set(ids)
        lane.paused = tuple(branch for branch in lane.paused if (followed.isdisjoint(branch.ids) if followed else branch.ids))

    def end_run(self, run: str, principal: str = "") -> None:
        """Forget it; its turns in flight stay listed until they end."""
        key = run_key(run, principal)
        if known := self.runs.pop(key, None):
            self._watch(key, known)

    def sweep(self, now: float) -> None:
        """Forget the runs that were idle for `seconds`; the cost grows only with what is forgotten."""
        for key in self._stale(now):
            run = self.runs[key]
            self._watch(key, run)
            if run.in_flight:  # it is not idle: look at it again in a while
                run.seen = now
                self.runs.move_to_end(key)
            else:
                del self.runs[key]

    def _stale(self, now: float) -> list[str]:
        stale: list[str] = []
        for key, run in self.runs.items():
            if now - run.seen < self.seconds:
                break
            stale.append(key)
        return stale

    def _touch(self, now: float, run_id: str, ask: Ask) -> Run:
        key = run_key(run_id, ask.principal)
        run = self.runs.get(key)
        if run is None:
            self._make_room()
            run = self.runs[key] = Run(run_id, ask.principal, ask.turn_class, ask.caller, ask.parent, now, now)
            return run
        self._watch(key, run)
        run.turn_class, run.caller, run.seen, run.placed = ask.turn_class, ask.caller, now, now
        run.parent = ask.parent or run.parent
        self.runs.move_to_end(key)
        return run

    def _known(self, now: float, record: InFlight) -> Run | None:
        """The run of a turn in flight, made the newest; None: it has none, or it was ended meanwhile."""
        run = record.owner
        if run is None:
            return None
        key = run_key(run.id, run.principal)
        if self.runs.get(key) is not run:
            return None
        self._watch(key, run)
        run.seen = now
        self.runs.move_to_end(key)
        return run

    def _watch(self, key: str, run: Run) -> None:
        if self.watcher is not None:
            self.watcher.before_change(key, run)

    def _make_room(self) -> None:
        if len(self.runs) >= self._runs_max:
            self._watch(*self.runs.popitem(last=False))


def _move(run: Run, model: str, replica: str, turn_seq: int, now: float) -> str:
    """Make `replica` the home of the lane, unless a newer turn did; returns the home before."""
    lane = run.lanes.get(model)
    if lane is None:
        run.lanes[model] = Lane(replica, turn_seq, now)
        return ""
    before = lane.home
    if turn_seq >= lane.turn_seq:
        lane.home, lane.turn_seq = replica, turn_seq
    return before


def _resume(run: Run, ask: Ask, own: str) -> tuple[tuple[str, Branch], ...]:
    """End the paused branches that this turn follows; returns them with their models."""
    ended: list[tuple[str, Branch]] = []
    for model, lane in run.lanes.items():
        if lane.paused:
            followed = [branch for branch in lane.paused if _follows(ask, branch, same_lane=model == own)]
            lane.paused = tuple(branch for branch in lane.paused if branch not in followed)
            ended += [(model, branch) for branch in followed]
    return tuple(ended)


def _pause_again(run: Run, ended: tuple[tuple[str, Branch], ...]) -> None:
    for model, branch in ended:
        lane = run.lanes.get(model)
        if lane is not None:
            lane.paused = (*lane.paused[1 - BRANCHES_MAX :], branch)


def _follows(ask: Ask, branch: Branch, *, same_lane: bool) -> bool:
    """By an id, in any lane; where one of the two has none, by the lane and the head of the conversation (as the scheduler does)."""
    if branch.ids and ask.tool_call_ids:
        return not set(branch.ids).isdisjoint(ask.tool_call_ids)
    return same_lane and (not branch.head_digest or not ask.head_digest or branch.head_digest == ask.head_digest)


def _remember(run: Run, ids: Sequence[str], head_digest: bytes, now: float) -> None:
    """`ids` oldest first."""
    known = run.tool_calls
    for each in ids:
        known.pop(each, None)
        known[each] = (head_digest, now)
    _trim(known, TOOL_CALLS_MAX)


def _trim(entries: "dict[str, tuple[bytes, float]] | dict[str, tuple[str, float]]", most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
