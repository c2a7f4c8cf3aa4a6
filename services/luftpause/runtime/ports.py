"""What do the runtime's parts promise each other?

`mcp_app` (and `http`) call `Runs`; `runs` carries out the core's effects through `ModelClient` and `Toolbox`. Tests put fakes behind
the last two.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Protocol

from msgspec import Struct

Json = dict[str, Any]


class ServiceClass(Enum):
    INTERACTIVE = "interactive"
    BATCH = "batch"


class RunState(Enum):
    """As shown to MCP clients."""

    RUNNING = "Running"
    AWAITING_APPROVAL = "AwaitingApproval"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        return self in {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}


class SpawnRequest(Struct, frozen=True):
    """The arguments of `spawn` and `run`, defaults resolved except `model` and `service_class` (None: see spec/4)."""

    task: str
    model: str | None = None
    service_class: ServiceClass | None = None
    system: str | None = None
    max_tool_calls: int = 8
    tools: tuple[str, ...] | None = None  # names or globs; None: all
    max_tokens: int = 256  # 0 leaves it to the engine
    parallel_tool_calls: bool = False
    parent: str | None = None
    caller: str = ""
    owner: str | None = None  # None: whoever has the handle
    traceparent: str = ""


class RunView(Struct, frozen=True):
    """What a client sees of a run."""

    handle: str
    state: RunState
    task: str
    model: str
    service_class: ServiceClass
    answer: str | None = None
    error: str | None = None
    tool_calls: int = 0
    failed_tool_calls: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    parent: str | None = None
    children: tuple[str, ...] = ()
    doing: str = ""  # for progress messages: "held or generating", "tool lookup", ""


class Runs(Protocol):
    """The runs of this runtime. Errors are LuftpauseError with codes unknown_handle, unknown_model, bad_argument, disk_full, stopping."""

    async def spawn(self, request: SpawnRequest) -> RunView:
        """Starts a run; `created` is on disk when this returns."""
        ...

    async def wait(
        self,
        handles: Sequence[str],
        mode: Literal["all", "any"],
        timeout_s: float,
        owner: str | None,
    ) -> tuple[RunView, ...]:
        """The state of every handle, in order, when all (any) have ended or the time is over. Cancelling it touches no run."""
        ...

    def view(self, handle: str, owner: str | None) -> RunView: ...

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        """All runs of this owner; None: all that have no owner."""
        ...

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        """Cancels the run and all its unfinished descendants; returns when the run has ended. Of an ended run: its view."""
        ...


# ---- towards the model ------------------------------------------------------------------------------------------


class ModelTurn(Struct, frozen=True):
    """One turn through the dataplane. `messages` and `tools` are OpenAI Chat Completions JSON."""

    run: str
    model: str
    messages: Sequence[Json]
    tools: Sequence[Json]
    service_class: ServiceClass
    caller: str
    max_tokens: int  # 0: not sent
    traceparent: str = ""


class ModelCall(Struct, frozen=True):
    """A tool call as the engine sent it; `arguments` unparsed (a string, or whatever the engine put there), `id` may be empty."""

    id: str
    name: str
    arguments: Any


class ModelAnswer(Struct, frozen=True):
    """`finish_reason` as the engine said; tokens 0 where it did not."""

    content: str
    calls: tuple[ModelCall, ...]
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class TurnError(Exception):
    """A turn gave no answer. `retry_after_s` None: don't retry; a partial answer was thrown away whole.

    `limited`: a 429, retried until cancelled; everything else counts toward `turn_retries_max`.
    """

    def __init__(self, message: str, *, retry_after_s: float | None, limited: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.limited = limited


class ModelClient(Protocol):
    async def ask(self, turn: ModelTurn) -> ModelAnswer:
        """Raises TurnError. Cancelling it closes the request, which stops the engine."""
        ...

    async def end_run(self, run: str) -> None:
        """Tells the dataplane that the run is over; never raises."""
        ...

    async def models(self) -> tuple[str, ...]:
        """Generative models that are served; raises TurnError."""
        ...


# ---- towards the tools ------------------------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True):
    """An upstream tool. `name` is what engines see (distinct, `^[a-zA-Z0-9_-]{1,64}$`), `original` what its server calls it."""

    name: str
    server: str
    original: str
    description: str
    input_schema: Json
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False


class ToolResult(Struct, frozen=True):
    """`text` is never empty; `failed`: the tool or the way to it said so."""

    text: str
    failed: bool = False


class ServerState(Struct, frozen=True):
    name: str
    connected: bool
    error: str = ""
    tools: int = 0


class Toolbox(Protocol):
    def tools(self) -> Mapping[str, ToolSpec]:
        """By the name that engines see, in a stable order."""
        ...

    def servers(self) -> tuple[ServerState, ...]: ...

    async def ready(self, seconds_max: float) -> None:
        """Returns when every server is connected, at the latest after `seconds_max`."""
        ...

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> ToolResult:
        """Errors and time-outs come back as failed results; only cancellation raises, and reaches the server."""
        ...
