"""Which turns does a recorded log tell of: when they came, what they cost, and which turn of their run they followed?"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Final

from luftpause.scheduler.core.events import (
    ConfigChanged,
    FirstToken,
    Kind,
    Load,
    ReplicaProbed,
    ReplicaSpec,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
)
from luftpause.scheduler.record_log import Header
from luftpause.scheduler.replay import Entry
from luftpause_fakes.engine_model import Segment

BODY_BYTES_PER_TOKEN: Final = 4.0  # where a turn's usage is not in the log
COMPLETION_TOKENS: Final = 256  # where no turn's is


@dataclass(eq=False)
class Turn:
    """A turn that was answered. Times are on the log's clock; `arrived` is when its client's request came in."""

    id: str
    run: str
    model: str
    turn_class: TurnClass
    caller: str
    principal: str
    api: str
    head: bytes
    body_bytes: int
    arrived: float
    held_seconds: float = 0.0
    placed: float = 0.0
    replica: str = ""
    first: float | None = None
    finished: float = 0.0
    paused: bool = False
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    guessed: bool = False  # its usage is not in the log
    after: "Turn | None" = None  # the turn of its run whose answer it followed
    tool_seconds: float = 0.0  # from that answer to its arrival
    prompt: tuple[Segment, ...] = ()
    answer: tuple[Segment, ...] = ()


@dataclass
class Reported:
    """A load report."""

    at: float
    load: Load


@dataclass
class Workload:
    """`left_out`: turns that were not answered, by why; a simulation does without them."""

    replicas: tuple[ReplicaSpec, ...]
    turns: list[Turn] = field(default_factory=list)  # in the order of their arrival
    left_out: Counter[str] = field(default_factory=Counter)
    models: dict[str, tuple[str, ...]] = field(default_factory=dict)  # learned, by replica
    loads: dict[str, list[Reported]] = field(default_factory=lambda: defaultdict(list))

    @property
    def guessed(self) -> int:
        return sum(turn.guessed for turn in self.turns)


def workload(header: Header, entries: Iterable[Entry]) -> Workload:
    """Read a log. Turns under way when it began are not among its turns: who asked for them is not in it."""
    reader = _Reader(Workload(header.replicas))
    for entry in entries:
        reader.read(entry)
    found = reader.found
    found.left_out["unfinished"] += len(reader.open)
    found.turns.sort(key=lambda turn: (turn.arrived, turn.id))
    found.left_out += Counter()  # without zeros
    _guess(found.turns)
    _follow(found.turns)
    _converse(found.turns)
    return found


class _Reader:
    def __init__(self, found: Workload) -> None:
        self.found = found
        self.open: dict[str, Turn] = {}

    def read(self, entry: Entry) -> None:
        match entry.event:
            case TurnRequested(kind=Kind.GENERATIVE) as event:
                self.open.setdefault(event.turn, _asked(event))  # asked again after a new session: it arrived long before
            case FirstToken() as event:
                self._first_token(event)
            case TurnFinished() as event:
                self._finish(event)
            case TurnAbandoned(turn=id_):
                self._leave_out(id_, "abandoned")
            case TurnFailed(turn=id_):
                self._leave_out(id_, "failed")
            case ReplicaProbed() | ConfigChanged() as event:
                self._of_replicas(event)
            case _:
                pass
        for name, fields in [item for decision in entry.decisions for item in decision.items()]:
            self._decided(name, fields, entry.event.now)

    def _decided(self, name: str, fields: dict[str, object], now: float) -> None:
        id_ = str(fields.get("turn", ""))
        turn = self.open.get(id_)
        if turn is None:
            return
        match name:
            case "Place":
                turn.run, turn.replica, turn.placed = str(fields["run"]), str(fields["replica"]), now
                turn.held_seconds = max(0.0, now - turn.arrived)
            case "Refuse" | "Expire":
                self._leave_out(id_, "refused" if name == "Refuse" else "expired")
            case _:
                pass

    def _leave_out(self, id_: str, why: str) -> None:
        if self.open.pop(id_, None) is not None:
            self.found.left_out[why] += 1

    def _finish(self, event: TurnFinished) -> None:
        turn = self.open.pop(event.turn, None)
        if turn is None or not turn.replica:
            return  # asked for before the log began, or nobody placed it
        turn.finished, turn.paused, turn.finish_reason = event.now, event.paused, event.finish_reason
        if event.usage is not None:
            turn.prompt_tokens, turn.completion_tokens = event.usage.prompt, event.usage.completion
            turn.cached_tokens = event.usage.cached
        self.found.turns.append(turn)

    def _first_token(self, event: FirstToken) -> None:
        turn = self.open.get(event.turn)
        if turn is not None and turn.first is None:
            turn.first = event.now

    def _of_replicas(self, event: ReplicaProbed | ConfigChanged) -> None:
        if isinstance(event, ConfigChanged):
            self.found.replicas = event.replicas
            return
        if event.models is not None:
            self.found.models[event.replica] = event.models
        if event.load is not None:
            self.found.loads[event.replica].append(Reported(event.now, event.load))


def _asked(event: TurnRequested) -> Turn:
    arrived = event.arrived if 0 < event.arrived < event.now else event.now
    run = event.run or event.fresh_run
    return Turn(
        event.turn,
        run,
        event.model,
        event.turn_class,
        event.caller,
        event.principal,
        event.api,
        event.head_digest,
        event.body_bytes,
        arrived,
    )


# ---- what the log does not say --------------------------------------------------------------------------------


def _guess(turns: Sequence[Turn]) -> None:
    """Tokens of turns without usage: the prompt from the length of its body, the answer as the middle one of the others."""
    known = [turn.completion_tokens for turn in turns if turn.completion_tokens]
    prompts = [turn.prompt_tokens for turn in turns if turn.prompt_tokens]
    answer = round(median(known)) if known else COMPLETION_TOKENS
    prompt = round(median(prompts)) if prompts else round(BODY_BYTES_PER_TOKEN * COMPLETION_TOKENS)
    for turn in turns:
        turn.guessed = not (turn.prompt_tokens and turn.completion_tokens)
        turn.prompt_tokens = turn.prompt_tokens or round(turn.body_bytes / BODY_BYTES_PER_TOKEN) or prompt
        turn.completion_tokens = turn.completion_tokens or answer


def _follow(turns: Sequence[Turn]) -> None:
    """A turn followed the newest answer of its run that was there when it arrived; without one it comes when it came."""
    for run in _by(turns, lambda turn: (turn.principal, turn.run)).values():
        for number, turn in enumerate(run):
            turn.after = _newest(run[:number], turn.arrived)
            turn.tool_seconds = turn.arrived - turn.after.finished if turn.after else 0.0


def _newest(turns: Sequence[Turn], by: float) -> Turn | None:
    """The one whose answer came last, by then."""
    return max((turn for turn in turns if turn.finished <= by), key=lambda turn: turn.finished, default=None)


def _converse(turns: Sequence[Turn]) -> None:
    """
    The prompts as conversations: a prompt continues the newest answer before it with the same run, model and head, if it is longer.

    One that is longer than the last prompt but not than that and its answer continues the prompt alone (reasoning is not sent back).
    Others begin with what all of that model share (a system prompt), see `_shared`.
    """
    keys = count(1)
    lanes = _by(turns, lambda turn: (turn.principal, turn.run, turn.model, turn.head)).values()
    shared = {model: Segment(next(keys), tokens) for model, tokens in _shared([lane[0] for lane in lanes]).items()}
    for lane in lanes:
        for number, turn in enumerate(lane):
            before = max(
                (other for other in lane[:number] if other.finished <= turn.arrived), key=lambda other: other.finished, default=None
            )
            head = shared.get(turn.model)
            known = [(*before.prompt, *before.answer), before.prompt] if before else []
            turn.prompt = _continued([*known, (head,)] if head else known, turn.prompt_tokens, keys)
            turn.answer = (Segment(next(keys), turn.completion_tokens),)


def _shared(first: Sequence[Turn]) -> dict[str, int]:
    """Tokens that the first prompts of most runs found in the cache, by model: the middle of them, where at least half found any."""
    found: dict[str, int] = {}
    for model in dict.fromkeys(turn.model for turn in first):
        cached = [turn.cached_tokens for turn in first if turn.model == model and turn.cached_tokens is not None]
        if cached and (middle := round(median(cached))) > 0:
            found[model] = middle
    return found


def _continued(known: Sequence[tuple[Segment, ...]], tokens: int, keys: "count[int]") -> tuple[Segment, ...]:
    """A prompt of so many tokens that begins with the first of these that is shorter."""
    for path in known:
        shared = sum(segment.tokens for segment in path)
        if shared < tokens:
            return (*path, Segment(next(keys), tokens - shared))
    return (Segment(next(keys), tokens),)


def _by(turns: Iterable[Turn], key: Callable[[Turn], Hashable]) -> dict[Hashable, list[Turn]]:
    found: dict[Hashable, list[Turn]] = defaultdict(list)
    for turn in turns:
        found[key(turn)].append(turn)
    return found
