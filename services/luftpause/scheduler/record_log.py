"""How does a recorded log read, line by line?

The first line is a `Header`. Then comes one line per event, in the order in which the scheduler handled them, with what was decided
(`decided`, left out when it was nothing). The last line is an `End`; it is missing, or torn, where the process was killed.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.core.decide import initial
from luftpause.scheduler.core.decisions import Decision
from luftpause.scheduler.core.events import Event, ReplicaSpec
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_values import UnknownValueError, decode, encode

VERSION: Final = 1

Begins = Literal["start", "rotation", "gap"]
Ends = Literal["stop", "rotation", "gap"]


class Header(Struct, frozen=True, omit_defaults=True):
    """
    Where the log begins. `state` None: as `initial` makes it of the settings and replicas, at `now` on the scheduler's clock.

    `seed` is the scheduler's epoch: there is no other chance in it. `hashed`: names are keyed hashes. `lost`: events that no log has since
    the one before. `part` counts the logs of one scheduler from 1; `recorded_at` is UTC.
    """

    record: int
    luftpause: str
    policy: str
    seed: str
    recorded_at: str
    now: float
    settings: Settings
    replicas: tuple[ReplicaSpec, ...]
    begins: Begins = "start"
    part: int = 1
    hashed: bool = True
    lost: int = 0
    state: Any = None


class End(Struct, frozen=True):
    """Why the log ends, and after how many events."""

    end: Ends
    events: int


class Decided(Struct, frozen=True):
    """The decisions of an event's line, each under the name of its class."""

    decided: tuple[dict[str, dict[str, Any]], ...] = ()


class NoLogError(LuftpauseError):
    """The file is no log that this version can read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="no_recorded_log")


# ---- writing ----------------------------------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()


def header_line(header: Header, state: State | None) -> bytes:
    """`state` None: it begins as `initial` makes it. Raises UnknownValueError where the state can't be recorded."""
    if state is not None:
        header = msgspec.structs.replace(header, state=encode(state))
    return _encoder.encode(header) + b"\n"


def event_line(event: Event, decisions: Sequence[Decision]) -> bytes:
    line = _encoder.encode(event)
    return line[:-1] + b',"decided":' + decided(decisions) + b"}\n" if decisions else line + b"\n"


def decided(decisions: Sequence[Decision]) -> bytes:
    """A JSON array."""
    return b"[" + b",".join([b'{"%b":%b}' % (type(each).__name__.encode(), _encoder.encode(each)) for each in decisions]) + b"]"


def end_line(why: Ends, events: int) -> bytes:
    return _encoder.encode(End(why, events)) + b"\n"


# ---- reading ----------------------------------------------------------------------------------------------------

_header = msgspec.json.Decoder(Header)
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_decided = msgspec.json.Decoder(Decided)
_end = msgspec.json.Decoder(End)


def read_header(line: bytes) -> Header:
    """Raises NoLogError."""
    try:
        version = msgspec.json.decode(line, type=dict[str, Any]).get("record")
        if isinstance(version, int) and version > VERSION:
            raise NoLogError(f"the log has version {version}, this luftpause reads up to {VERSION}; replay it with a newer one")
        return _header.decode(line)
    except msgspec.MsgspecError as error:
        mend = "`luftpause scheduler --record DIR` writes logs"
        raise NoLogError(f"its first line is not that of a recorded log ({error}); {mend}") from error


def start_state(header: Header) -> State:
    """The state before the first event. Raises NoLogError."""
    try:
        if header.state is None:
            return initial(header.settings, header.replicas, header.now)
        return decode(header.state)
    except (UnknownValueError, ValueError) as error:
        raise NoLogError(f"its start state can't be read: {error}") from error


def read_event(line: bytes) -> Event:
    """Raises msgspec.MsgspecError."""
    return _event.decode(line)


def read_decided(line: bytes) -> tuple[dict[str, dict[str, Any]], ...]:
    """Raises msgspec.MsgspecError."""
    return _decided.decode(line).decided


def read_end(line: bytes) -> End | None:
    """None: the line is an event's, or torn."""
    if not line.startswith(b'{"end":'):
        return None
    try:
        return _end.decode(line)
    except msgspec.MsgspecError:
        return None
