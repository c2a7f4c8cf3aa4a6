"""What does a dataplane remember of runs and turns, and tell in its Hello?"""

from msgspec import Struct

from luftpause.scheduler.core.kinds import Kind, TurnClass


class PausedBranch(Struct, frozen=True, gc=False):
    """An answer that ended in tool calls and waits for a turn that carries one of `ids`."""

    ids: tuple[str, ...]
    since: float


class LaneMemory(Struct, frozen=True, gc=False):
    model: str
    home: str
    turn_seq: int
    paused: tuple[PausedBranch, ...] = ()
    ended: float = 0.0  # when the lane's last turn ended


class ToolCallMemory(Struct, frozen=True, gc=False):
    id: str
    head_digest: bytes
    seen: float


class ResponseMemory(Struct, frozen=True, gc=False):
    id: str
    replica: str
    seen: float


class RunMemory(Struct, frozen=True, gc=False):
    """What a dataplane remembers of a run. Times are on this scheduler's clock (now - age)."""

    run: str
    turn_class: TurnClass
    caller: str
    turn_seq: int
    seen: float
    parent: str = ""
    lanes: tuple[LaneMemory, ...] = ()
    tool_calls: tuple[ToolCallMemory, ...] = ()
    responses: tuple[ResponseMemory, ...] = ()
    principal: str = ""
    placed: float = 0.0  # when a turn of it last had a place there; 0: not told, then `seen` counts
    fell: tuple[tuple[str, str], ...] = ()  # (model that its requests name, model it goes on with)


class TurnMemory(Struct, frozen=True, gc=False):
    """A turn that is in flight at a dataplane."""

    turn: str
    attempt: int
    run: str
    model: str
    replica: str
    turn_seq: int
    turn_class: TurnClass
    caller: str
    placed: float
    kind: Kind = Kind.GENERATIVE
    first_token: bool = False
    principal: str = ""
    head_digest: bytes = b""
    fence: int = 0  # of its lease, at a replica with a quota
