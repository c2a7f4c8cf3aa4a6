"""Which facts about a run does the journal hold?

Every event is one journal line. Fields may be added with a default; none is renamed, removed or given another meaning or default (defaults
aren't written), because old journals are read for as long as their runs are kept. Times are wall-clock seconds since the epoch.
"""

from msgspec import Struct

from luftpause.runtime.ports import BudgetKind, RunState, ServiceClass


class Created(Struct, frozen=True, tag_field="type", tag="created", omit_defaults=True):
    """The first event: all arguments of the spawn, resolved."""

    handle: str
    at: float
    task: str
    model: str
    service_class: ServiceClass
    system: str  # "": no system message
    max_tool_calls: int
    max_tokens: int
    tools: tuple[str, ...] | None = None
    parallel_tool_calls: bool = False
    parent: str | None = None
    caller: str = ""
    owner: str | None = None
    traceparent: str = ""
    budget_tokens: int | None = None
    budget_tool_calls: int | None = None
    budget_seconds: float | None = None
    approve_tools: tuple[str, ...] = ()
    tool_call_id: str = ""
    task_id: str | None = None
    spawned_by: str = ""


class AskedCall(Struct, frozen=True, omit_defaults=True):
    """A tool call that the model made, as it stands in the history.

    `id` is unique in the run; `arguments` is the JSON text of an object; `rejected` is why it isn't made ("": it is);
    `approval`: a person must allow it first.
    """

    id: str
    name: str
    arguments: str
    rejected: str = ""
    approval: bool = False


class Answered(Struct, frozen=True, tag_field="type", tag="answered", omit_defaults=True):
    """A turn ended with an answer. `recovered`: its calls were written as text; `seconds`: from asking to the end of the answer."""

    content: str
    calls: tuple[AskedCall, ...] = ()
    finish_reason: str = ""
    recovered: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0


class ApprovalAsked(Struct, frozen=True, tag_field="type", tag="approval_asked", omit_defaults=True):
    """The call `id` waits for a person, who answers by the name `approval`."""

    id: str
    approval: str
    at: float


class ApprovalAnswered(Struct, frozen=True, tag_field="type", tag="approval_answered", omit_defaults=True):
    """The first decision; there is no second one."""

    approval: str
    allowed: bool
    at: float


class CallStarted(Struct, frozen=True, tag_field="type", tag="call_started", omit_defaults=True):
    """On disk before the call leaves. `repeatable`: its tool said read-only or idempotent at that time."""

    id: str
    repeatable: bool = False


class CallEnded(Struct, frozen=True, tag_field="type", tag="call_ended", omit_defaults=True):
    id: str
    text: str
    failed: bool = False
    seconds: float = 0.0


class Shortened(Struct, frozen=True, tag_field="type", tag="shortened", omit_defaults=True):
    """Tool results older than the last round were cut to `chars_max` characters and a note."""

    chars_max: int


class BudgetUsed(Struct, frozen=True, tag_field="type", tag="budget_used", omit_defaults=True):
    """How far the run's own budget is used; the only event that may follow `finished`, because a budget counts on.

    `seconds`: for which the runtime was up since the run began. `exceeded`: the limit that was passed, when the subtree had used `used`
    of it.
    """

    seconds: float
    exceeded: BudgetKind | None = None
    used: float = 0.0


class Resumed(Struct, frozen=True, tag_field="type", tag="resumed", omit_defaults=True):
    """A runtime took the run up again after the one that ran it had ended."""

    at: float


class Finished(Struct, frozen=True, tag_field="type", tag="finished", omit_defaults=True):
    """The end. Holds the whole result, so that `created` and this are enough to show the run for ever."""

    state: RunState
    at: float
    seconds: float
    text: str = ""  # the answer of a completed run, else why it has none
    tool_calls: int = 0
    failed_tool_calls: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turn_seconds: float = 0.0
    tool_seconds: float = 0.0
    truncated: bool = False
    budget_seconds: float = 0.0
    exceeded: BudgetKind | None = None
    exceeded_used: float = 0.0


Event = Created | Answered | ApprovalAsked | ApprovalAnswered | CallStarted | CallEnded | Shortened | BudgetUsed | Resumed | Finished
