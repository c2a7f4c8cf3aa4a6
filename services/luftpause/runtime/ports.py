"""What do the runtime's parts promise each other?

`mcp_app` (and `http`) call `Runs`; `runs` carries out the core's effects through `ModelClient` and `Toolbox`. Tests put fakes behind
the last two.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
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
    budget_tokens: int | None = None  # prompt + completion; this and the next two limit the run's whole subtree, None: no limit
    budget_tool_calls: int | None = None
    budget_seconds: float | None = None
    approve_tools: tuple[str, ...] = ()  # names or globs of tools that wait for a person, beside those marked destructive
    tool_call_id: str = ""  # of the model's call that asked for this spawn, where the client told it; "": unknown
    spawned_by: str = ""  # the dataplane's run whose model made that call; "": its turns went elsewhere
    task_id: str | None = None  # of the MCP task that is a view of this run; found again by `Runs.of_task`, also after a restart


class Amounts(Struct, frozen=True):
    """Limits of a budget (None: no such limit), or what was used of it (never None)."""

    tokens: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None


class BudgetKind(Enum):
    """As it stands in `budget exceeded: <which> <used>/<limit>` and in the JSON of budgets."""

    TOKENS = "tokens"
    TOOL_CALLS = "toolCalls"
    SECONDS = "seconds"


class Budget(Struct, frozen=True):
    """A run's budget. `used` is that of its subtree; `exceeded`: the first limit that was passed, for ever."""

    limits: Amounts
    used: Amounts
    exceeded: BudgetKind | None = None


class PendingApproval(Struct, frozen=True):
    """A tool call that waits for a person. `id` is unique within the run and never used again, also after a restart."""

    handle: str
    id: str
    tool: str
    arguments: Json
    asked_at: float  # seconds since the epoch

    @property
    def key(self) -> str:
        """Unique among all runs: `<handle>/<id>`."""
        return f"{self.handle}/{self.id}"


class Decided(Struct, frozen=True):
    """What became of an approval. `first` False: it was decided before; `allowed` is then what was decided, not what was asked for now."""

    id: str
    tool: str
    allowed: bool
    first: bool
    run: "RunView"


class Costs(Struct, frozen=True):
    """Of one run, or of a run and all its descendants. Seconds are added up over turns and calls, also those at the same time."""

    turns: int = 0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turn_seconds: float = 0.0
    tool_seconds: float = 0.0


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
    truncated: bool = False  # the answer was cut at the turn's length limit (`finish_reason: length`)
    pending_approvals: tuple[PendingApproval, ...] = ()  # the oldest first; not empty exactly in state AwaitingApproval
    budget: Budget | None = None  # None: the run has no limits of its own
    turn_seconds: float = 0.0
    tool_seconds: float = 0.0
    subtree: Costs = Costs()  # this run and all its descendants
    created_at: float = 0.0  # seconds since the epoch
    ended_at: float | None = None
    owner: str | None = None
    task_id: str | None = None


class Decision(Struct, frozen=True):
    """What `decide` chose. `probabilities` sum to 1 over the scored labels; `unscored`: labels that the model did not consider."""

    label: str
    probabilities: dict[str, float]
    unscored: tuple[str, ...]
    model: str


class Runs(Protocol):
    """The runs of this runtime.

    Errors are LuftpauseError with codes unknown_handle, unknown_model, bad_argument, disk_full, too_many_runs, stopping,
    dataplane_unreachable.
    """

    async def spawn(self, request: SpawnRequest) -> RunView:
        """Starts a run; `created` is on disk when this returns."""
        ...

    async def wait(
        self,
        handles: Sequence[str],
        mode: Literal["all", "any"],
        timeout_s: float,
        owner: str | None,
        approvals_known: Collection[str] | None = None,
    ) -> tuple[RunView, ...]:
        """The state of every handle, in order, when all (any) have ended or the time is over. Cancelling it touches no run.

        With `approvals_known` it also returns once one of these runs has a pending approval whose `key` is not among these (at once, if
        there is one already); None: approvals end no wait. The call passes the keys that it has asked about and is not to be woken for.
        """
        ...

    async def approve(self, handle: str, allow: bool, approval_id: str | None, owner: str | None) -> Decided:
        """Answers a pending approval; without an id the oldest. On disk when this returns. The first decision wins.

        A decided approval: `Decided.first` is False. Raises LuftpauseError (`unknown_handle`; `bad_argument` naming the pending ones where
        the id is unknown or the run waits for none).
        """
        ...

    async def approval_over(self, handle: str, approval_id: str, owner: str | None) -> bool | None:
        """Returns when this approval no longer waits: what was decided, None if the run ended instead. At once if so already.

        To withdraw a question that somebody else has answered. Cancelling it touches nothing.
        """
        ...

    async def decide(self, text: str, labels: Sequence[str] | None, model: str | None, caller: str) -> Decision:
        """A single pass: which of `labels` (2 to 20) fits `text`; without labels a classifier's own labels.

        `model` None: `runtime.default_model` (with labels), else the only fitting model that is served. Raises LuftpauseError.
        """
        ...

    def of_task(self, task_id: str, owner: str | None) -> RunView:
        """The run that was spawned with this `task_id`. Raises LuftpauseError (`unknown_handle`)."""
        ...

    def everything(self) -> tuple[RunView, ...]:
        """All runs, whoever they belong to, parents before their children: for the status page."""
        ...

    def view(self, handle: str, owner: str | None) -> RunView: ...

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        """All runs of this owner; None: all that have no owner."""
        ...

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        """Cancels the run and all its unfinished descendants; returns when the run has ended. Of an ended run: its view."""
        ...


class Joins(Protocol):
    async def run_of_call(self, tool_call_id: str) -> str:
        """The run of the dataplane whose model made this tool call; "": nobody knows. Never raises, and takes a second at most."""
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
    parent: str = ""  # the run above it, as the dataplane knows it


class ModelCall(Struct, frozen=True):
    """A tool call as the engine sent it; `arguments` unparsed (a string, or whatever the engine put there), `id` may be empty."""

    id: str
    name: str
    arguments: Any


class ModelAnswer(Struct, frozen=True):
    """`finish_reason` as the engine said; tokens 0 where it did not. `compact`: a quota is about to end, the next turn should say less."""

    content: str
    calls: tuple[ModelCall, ...]
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    compact: bool = False


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

    async def classifiers(self) -> tuple[str, ...]:
        """Single-pass models that are served; raises TurnError."""
        ...

    async def decide(self, model: str, text: str, labels: Sequence[str] | None, caller: str) -> Decision:
        """One pass of a classifier, or with labels one token of a generative model; raises TurnError."""
        ...


# ---- towards the tools ------------------------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True):
    """An upstream tool. `name` is what engines see (distinct, `^[a-zA-Z0-9_-]{1,64}$`), `original` what its server calls it.

    `parameters`: its input schema as engines take it; None: as it is.
    """

    name: str
    server: str
    original: str
    description: str
    input_schema: Json
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    parameters: Json | None = None

    @property
    def needs_approval(self) -> bool:
        """Does every call of it wait for a person? (`approve_tools` of a run may name more.)"""
        return self.destructive and not self.read_only


class ToolResult(Struct, frozen=True):
    """`text` is never empty; `failed`: the tool or the way to it said so."""

    text: str
    failed: bool = False


class ServerState(Struct, frozen=True):
    name: str
    connected: bool
    error: str = ""
    tools: int = 0
    notes: tuple[str, ...] = ()  # tools of this server that can't be used, and why


class Toolbox(Protocol):
    def tools(self) -> Mapping[str, ToolSpec]:
        """By the name that engines see, in a stable order."""
        ...

    def away(self) -> Mapping[str, ToolSpec]:
        """Those of servers that are not connected now."""
        ...

    def servers(self) -> tuple[ServerState, ...]: ...

    def on_change(self, tell: Callable[[], None]) -> None:
        """`tell` is called, on the event loop, whenever other tools than before can be called."""
        ...

    async def ready(self, seconds_max: float) -> None:
        """Returns when every server is connected, at the latest after `seconds_max`."""
        ...

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> ToolResult:
        """Errors and time-outs come back as failed results; only cancellation raises, and reaches the server."""
        ...
