"""Does a recorded log lead to the same decisions again?

Each event goes through `decide`, and what that decides is compared with what the log says. Runs that are forgotten in one step may be so in
another order in a log with hashed names: the core sorts timers of one instant by name.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.decisions import Step
from luftpause.scheduler.core.events import Event
from luftpause.scheduler.core.model import State
from luftpause.scheduler.record_log import End, Header, NoLogError, decided, event_line, read_decided, read_end, read_event, read_header
from luftpause.scheduler.record_log import start_state as start_of

BEFORE_SHOWN: Final = 5  # events before a difference
DIFFERENCES_MAX: Final = 100  # kept; the others are counted

Decisions = tuple[dict[str, dict[str, Any]], ...]


class Entry(Struct, frozen=True):
    """One event of a log (`number` from 1), as its line had it."""

    number: int
    event: Event
    line: bytes
    decisions: Decisions


class Difference(Struct, frozen=True):
    """An event that led to other decisions than recorded; `before`: the lines of the events before it, oldest first."""

    number: int
    line: bytes
    recorded: Decisions
    replayed: Decisions
    before: tuple[bytes, ...]


class Replayed(Struct, frozen=True):
    """What came of a replay. `torn`: the last line was broken off. `end` None: the log just stops."""

    header: Header
    events: int
    decisions: int
    different: int  # events whose decisions differ
    differences: tuple[Difference, ...]  # the first of them
    torn: bool
    end: End | None
    state: State


class CoreFailedError(LuftpauseError):
    """The core raised on an event of the log."""

    def __init__(self, entry: Entry, error: Exception) -> None:
        line = entry.line.decode(errors="replace")[:400].rstrip("\n")
        super().__init__(f"the core failed on event {entry.number} ({type(error).__name__}: {error}): {line}", code="core_failed")


class Log:
    """A log that is read line by line, once. Raises NoLogError when its lines are not those of a log."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self.first = next(self._lines, b"")
        self.header = read_header(self.first)
        self.end: End | None = None
        self.torn = False

    def __iter__(self) -> Iterator[Entry]:
        for number, line in enumerate(self._lines, 1):
            if not line.endswith(b"\n"):
                self.torn = True
                return
            self.end = read_end(line)
            if self.end is not None:
                return
            yield _entry(number, line)


def _entry(number: int, line: bytes) -> Entry:
    try:
        return Entry(number, read_event(line), line, read_decided(line))
    except msgspec.MsgspecError as error:
        raise NoLogError(f"event {number} (line {number + 1}) can't be read: {error}") from error


def replay(lines: Iterable[bytes], *, differences_max: int = DIFFERENCES_MAX) -> Replayed:
    """Run a log through `decide`. Raises NoLogError; CoreFailedError."""
    log = Log(lines)
    state = start_of(log.header)
    count = decisions = different = 0
    differences: list[Difference] = []
    before: deque[bytes] = deque(maxlen=BEFORE_SHOWN)
    for entry in log:
        count = entry.number
        step = _decided(state, entry)
        state = step.state
        decisions += len(step.decisions)
        replayed = again(step)
        if not same(entry.decisions, replayed, hashed=log.header.hashed):
            different += 1
            if len(differences) < differences_max:
                differences.append(Difference(entry.number, entry.line, entry.decisions, replayed, tuple(before)))
        before.append(entry.line)
    return Replayed(log.header, count, decisions, different, tuple(differences), log.torn, log.end, state)


def _decided(state: State, entry: Entry) -> Step:
    try:
        return decide(state, entry.event)
    except Exception as error:
        raise CoreFailedError(entry, error) from error


def again(step: Step) -> Decisions:
    """Decisions in the form in which a log has them."""
    return tuple(msgspec.json.decode(decided(step.decisions), type=list[dict[str, dict[str, Any]]]))


def same(recorded: Decisions, replayed: Decisions, *, hashed: bool) -> bool:
    if recorded == replayed:
        return True
    return hashed and _forgets_sorted(recorded) == _forgets_sorted(replayed)


def _forgets_sorted(decisions: Decisions) -> list[dict[str, dict[str, Any]]]:
    forgets = [each for each in decisions if "Forget" in each]
    return [*sorted(forgets, key=lambda each: str(each["Forget"])), *[each for each in decisions if "Forget" not in each]]


def rewritten(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of the log with what is decided today."""
    log = Log(lines)
    state = start_of(log.header)
    yield log.first
    for entry in log:
        step = decide(state, entry.event)
        state = step.state
        yield event_line(entry.event, step.decisions)
    if log.end is not None:
        yield msgspec.json.encode(log.end) + b"\n"
