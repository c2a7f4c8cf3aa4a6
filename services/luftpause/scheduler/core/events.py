"""What can happen to the scheduler?

One frozen value per fact. `now` is seconds on the host's monotonic clock and never goes back; `dataplane` names the reporting
dataplane. A turn's request is keyed by (turn, attempt): `TurnReturned` ends attempt n and opens attempt n+1.
"""

from enum import Enum
from typing import Literal

from msgspec import Struct

from luftpause.scheduler.core.kinds import Kind as Kind  # noqa: PLC0414 (whoever asks for events finds them here)
from luftpause.scheduler.core.kinds import TurnClass as TurnClass  # noqa: PLC0414
from luftpause.scheduler.core.memory import RunMemory, TurnMemory


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one turn as the engine counted them; `cached` is None where it does not say."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None


class Load(Struct, frozen=True, gc=False, omit_defaults=True):
    """
    Requests inside an engine: summed over its rows for one model.

    `kv_tokens`: how many tokens its KV memory holds; `kv_used`: by requests that run; `slots`: requests that it runs at once, each in a
    place that keeps its tokens until another one takes it. None: it does not say.
    """

    running: int
    waiting: int
    kv_tokens: int | None = None
    kv_used: int | None = None
    slots: int | None = None


class ReplicaSpec(Struct, frozen=True, gc=False):
    """
    A replica as configured. `models` None: learned from its probe; one with `*` in it is a pattern (`gpt-*`, `*`).

    `capped` False: its load is never asked (`load: none`). `priority`: its engine has a priority queue whose sign is that one's. `router`:
    several engines behind one address. `quota`: the target whose allowance its turns need; `fallback`: models, best first, that runs go on
    with while that is about to end; `passes_limits`: its clients see its refusals by quota.
    """

    name: str
    url: str
    models: tuple[str, ...] | None = None
    kind: Kind = Kind.GENERATIVE
    capped: bool = True
    max_in_flight: int | None = None
    api_key_env: str = ""
    apis: tuple[str, ...] = ()
    priority: Literal["off", "sglang", "vllm"] = "off"  # sglang: higher goes first; vllm: lower goes first
    router: bool = False
    quota: str = ""
    passes_limits: bool = False
    fallback: tuple[str, ...] = ()


class Happened(Struct, frozen=True, gc=False, tag=True, tag_field="event", omit_defaults=True):
    """What every event is: a value that a log can hold under the name of its class."""


# ---- turns ------------------------------------------------------------------------------------------------------


class TurnRequested(Happened, frozen=True, gc=False):
    """
    A dataplane asks for a place. `arrived` is when the client's request came in, on this clock (now - age).

    `sent_to`: it has sent this single pass there already, as it may (`admission.passes_unasked`).
    """

    now: float
    dataplane: str
    turn: str
    attempt: int
    fresh_run: str  # the id to use if this turns out to be a new run
    model: str
    turn_class: TurnClass = TurnClass.INTERACTIVE
    caller: str = ""
    run: str = ""  # stated by header; empty: not stated
    parent: str = ""
    kind: Kind = Kind.GENERATIVE
    api: str = "chat"
    tool_call_ids: tuple[str, ...] = ()  # newest first
    head_digest: bytes = b""
    previous_response: str = ""
    body_hash: bytes = b""
    arrived: float = 0.0
    without: tuple[str, ...] = ()  # replicas that gave it back
    principal: str = ""
    body_bytes: int = 0
    priority: int = -1  # claimed, for quotas: 0 to 2; -1: not stated
    answer_tokens_max: int = 0  # as the request limits it; 0: not stated
    traceparent: str = ""  # of the trace that it belongs to; no rule hangs on it
    sent_to: str = ""


class TurnAbandoned(Happened, frozen=True, gc=False):
    """Its client left while it was held or being placed."""

    now: float
    dataplane: str
    turn: str
    attempt: int


class ReturnReason(Enum):
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    LIMITED = "limited"


class TurnReturned(Happened, frozen=True, gc=False):
    """The replica did not take it and no byte went on: held again with its old arrival, without that replica."""

    now: float
    dataplane: str
    turn: str
    attempt: int
    replica: str
    reason: ReturnReason


class TurnStarted(Happened, frozen=True, gc=False):
    """The request was written to the replica."""

    now: float
    dataplane: str
    turn: str
    attempt: int


class FirstToken(Happened, frozen=True, gc=False):
    now: float
    dataplane: str
    turn: str


class ToolCallSeen(Happened, frozen=True, gc=False):
    """Ids in an answer, at first sight in the stream."""

    now: float
    dataplane: str
    turn: str
    ids: tuple[str, ...]


class ResponseSeen(Happened, frozen=True, gc=False):
    """The engine stores this answer under `response` (Responses API)."""

    now: float
    dataplane: str
    turn: str
    response: str


class TurnFinished(Happened, frozen=True, gc=False):
    """The answer is complete; `paused`: it ended in tool calls, of `tools` (their names, where the dataplane reads them)."""

    now: float
    dataplane: str
    turn: str
    attempt: int
    finish_reason: str = ""
    usage: Usage | None = None
    paused: bool = False
    tool_call_ids: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class TurnFailed(Happened, frozen=True, gc=False):
    """It ended any other way; the run becomes idle, never paused."""

    now: float
    dataplane: str
    turn: str
    attempt: int
    reason: str


class RunEnded(Happened, frozen=True, gc=False):
    """
    `DELETE /v1/runs/{id}`: turns in flight finish, held ones are refused, then the run is forgotten.

    `ended` is when that was, on this clock (now - age); None: now. Dataplanes say it again after each Hello: a run with a turn since then
    goes on.
    """

    now: float
    run: str
    principal: str = ""
    ended: float | None = None


class ResponseSought(Happened, frozen=True, gc=False):
    """A dataplane asks which replica stores a response; `query` names the answer."""

    now: float
    dataplane: str
    query: str
    response: str
    principal: str = ""


# ---- dataplanes -------------------------------------------------------------------------------------------------


class Resync(Happened, frozen=True, gc=False):
    """A complete Hello. Same `boot`: replaces that dataplane's turns. Another boot: the former boot's turns are freed."""

    now: float
    dataplane: str
    session: str
    boot: str
    runs: tuple[RunMemory, ...] = ()
    turns: tuple[TurnMemory, ...] = ()


class DataplaneLost(Happened, frozen=True, gc=False):
    """Its session ended; ignored unless `session` is its current one."""

    now: float
    dataplane: str
    session: str


class DataplaneAlive(Happened, frozen=True, gc=False):
    """`turns`: all it has in flight (every 30 s), else None. `delivering`: replicas that sent bytes since the last one."""

    now: float
    dataplane: str
    turns: tuple[str, ...] | None = None
    delivering: tuple[str, ...] = ()


# ---- replicas ---------------------------------------------------------------------------------------------------


class ReplicaSuspected(Happened, frozen=True, gc=False):
    """A dataplane could not connect: probe now; until that answers its turns avoid the replica."""

    now: float
    dataplane: str
    replica: str


class ReplicaUnusable(Happened, frozen=True, gc=False):
    """This dataplane lacks the replica's key: it gets no turns for it."""

    now: float
    dataplane: str
    replica: str
    reason: str


class ProbeOutcome(Enum):
    OK = "ok"
    REFUSED = "refused"  # nobody listens: unhealthy at once
    MISSED = "missed"  # time-out or 5xx: unhealthy after three in a row


class ReplicaProbed(Happened, frozen=True, gc=False):
    """`load` None: metrics missing or unreadable (`load_unknown`), or never asked. `models` None: not learned in this probe."""

    now: float
    replica: str
    outcome: ProbeOutcome
    load: Load | None = None
    models: tuple[str, ...] | None = None
    apis: tuple[str, ...] | None = None


class ConfigChanged(Happened, frozen=True, gc=False):
    """The replicas as they are configured from now on."""

    now: float
    replicas: tuple[ReplicaSpec, ...]


# ---- quotas -----------------------------------------------------------------------------------------------------


class QuotaGranted(Happened, frozen=True, gc=False):
    """
    A wish (`ReserveQuota`) is granted: its lease is `fence`.

    `level`: how far to cut the load (`quota_model`); `answer_share`, `answer_least`: by how much answers, down to how many tokens.
    """

    now: float
    turn: str
    attempt: int
    replica: str
    fence: int
    level: int = 0
    answer_share: float = 1.0
    answer_least: int = 0


class QuotaDeferred(Happened, frozen=True, gc=False):
    """Not now; it waits in the governor's queue. `wait_seconds`: nothing is granted there before."""

    now: float
    turn: str
    attempt: int
    replica: str
    wait_seconds: float = 0.0


class QuotaRefused(Happened, frozen=True, gc=False):
    """The governor does not keep the wish. `status` HTTP, `code` stable; `retry_after_seconds` 0: a retry does not help."""

    now: float
    turn: str
    attempt: int
    replica: str
    status: int
    code: str
    message: str
    retry_after_seconds: float = 0.0


# ---- time -------------------------------------------------------------------------------------------------------


class Tick(Happened, frozen=True, gc=False):
    """Sent at `wake_at`, at the latest after 1 s."""

    now: float


class Continue(Happened, frozen=True, gc=False):
    """The last step said `more`: go on where it stopped."""

    now: float


Event = (
    TurnRequested
    | TurnAbandoned
    | TurnReturned
    | TurnStarted
    | FirstToken
    | ToolCallSeen
    | ResponseSeen
    | TurnFinished
    | TurnFailed
    | RunEnded
    | ResponseSought
    | Resync
    | DataplaneLost
    | DataplaneAlive
    | ReplicaSuspected
    | ReplicaUnusable
    | ReplicaProbed
    | ConfigChanged
    | QuotaGranted
    | QuotaDeferred
    | QuotaRefused
    | Tick
    | Continue
)
