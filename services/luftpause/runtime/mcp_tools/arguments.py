"""Which arguments do the tools take, and what does a bad one get to read?"""

import difflib
import json
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from luftpause.kit.errors import LuftpauseError

HANDLES_MAX: Final = 10_000
LABELS_MAX: Final = 20
CALLS_MAX: Final = 100_000
TOKENS_MAX: Final = 10_000_000


def _listed(value: object) -> object:
    """Clients send lists as JSON text, and one item without its list."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return value
        return [value] if text else value
    return value


def _present(value: object) -> object:
    """An empty text stands for an argument that was left out."""
    return None if isinstance(value, str) and not value.strip() else value


def _lowered(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")  # noqa: TRY004 - pydantic reports ValueError only
    return value


Optional = BeforeValidator(_present)
Listed = BeforeValidator(_listed)
Lowered = BeforeValidator(_lowered)
Number = BeforeValidator(_not_bool)
Calls = Annotated[int, Field(ge=0, le=CALLS_MAX)]
Tokens = Annotated[int, Field(ge=0, le=TOKENS_MAX)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TokensLimit = Annotated[int, Field(ge=1, le=1_000_000_000)]
SecondsLimit = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Glob = Annotated[str, Field(min_length=1, max_length=256)]
Handle = Annotated[str, Field(min_length=1, max_length=128)]
Label = Annotated[str, Field(min_length=1, max_length=256)]


class Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, regex_engine="python-re")


class SpawnArguments(Arguments):
    task: Annotated[str, Field(min_length=1, description="What the sub-agent should do, with all it needs to know: it sees nothing else.")]
    model: Annotated[str | None, Optional, Field(description="Model to use; left out: the default model.")] = None
    service_class: Annotated[
        Literal["interactive", "batch"] | None,
        Lowered,
        Optional,
        Field(description="interactive: someone waits for it. batch: may wait behind others. Left out: the parent's, else interactive."),
    ] = None
    system: Annotated[str | None, Optional, Field(description="System prompt in place of the default one.")] = None
    max_tool_calls: Annotated[Calls | None, Optional, Number, Field(description="Tool calls that it may make; then it must answer.")] = None
    tools: Annotated[
        list[Glob] | None,
        Listed,
        Field(description="Names or globs (`wiki_*`) of the tools that it may use; left out: all that `tools` lists; []: none."),
    ] = None
    max_tokens: Annotated[
        Tokens | None, Optional, Number, Field(description="Longest answer of one turn in tokens; 0: no limit of ours.")
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Optional, Field(description="Make all tool calls of one answer at once instead of one after another.")
    ] = None
    parent: Annotated[
        Handle | None, Optional, Field(description="Handle of the run that this one belongs to; cancelling the parent cancels it too.")
    ] = None
    budget_tokens: Annotated[
        TokensLimit | None,
        Optional,
        Number,
        Field(description="Most tokens, prompt and completion, of this run and all its descendants; beyond it they are cancelled."),
    ] = None
    budget_tool_calls: Annotated[
        Calls | None,
        Optional,
        Number,
        Field(description="Most tool calls of this run and its descendants; beyond it they are cancelled."),
    ] = None
    budget_seconds: Annotated[
        SecondsLimit | None,
        Optional,
        Number,
        Field(description="Seconds that this run and all its descendants have; then they are cancelled."),
    ] = None
    approve_tools: Annotated[
        list[Glob] | None,
        Listed,
        Field(description="Names or globs of tools whose calls wait for a person's consent, beside those that are marked destructive."),
    ] = None


class AwaitArguments(Arguments):
    handles: Annotated[
        list[Handle], Listed, Field(min_length=1, max_length=HANDLES_MAX, description="Handles that `spawn` returned; give all at once.")
    ]
    mode: Annotated[Literal["all", "any"] | None, Lowered, Optional, Field(description="Return when all have ended, or when any has.")] = (
        None
    )
    timeout: Annotated[
        Seconds | None, Optional, Number, Field(description="Seconds to wait; then the states so far are returned. The runs go on.")
    ] = None


class StatusArguments(Arguments):
    handle: Annotated[Handle | None, Optional, Field(description="One run; left out: all of yours.")] = None


class CancelArguments(Arguments):
    handle: Annotated[Handle, Field(description="The run to cancel, with all its unfinished descendants.")]


class ApproveArguments(Arguments):
    handle: Annotated[Handle, Field(description="The run that waits for an approval.")]
    allow: Annotated[bool, Field(description="true: the tool call is made; false: the sub-agent is told that it was declined.")]
    approval_id: Annotated[
        Handle | None, Optional, Field(description="Which of its pending approvals, where it has several; left out: the oldest.")
    ] = None


class DecideArguments(Arguments):
    input: Annotated[str, Field(min_length=1, description="The text to judge.")]
    labels: Annotated[
        list[Label] | None,
        Listed,
        Field(
            min_length=2,
            max_length=LABELS_MAX,
            description="The answers to choose from; left out: those of a classifier, where one is served.",
        ),
    ] = None
    model: Annotated[str | None, Optional, Field(description="Model to use; left out: the default one.")] = None


class NoArguments(Arguments):
    pass


A = TypeVar("A", bound=Arguments)

_ALLOWED: Final = {
    "task": "a text that is not empty",
    "model": "the name of a model",
    "serviceClass": "`interactive` or `batch`",
    "system": "a text",
    "maxToolCalls": f"a whole number from 0 to {CALLS_MAX}",
    "tools": "a list of tool names or globs",
    "maxTokens": f"a whole number from 0 to {TOKENS_MAX}",
    "parallelToolCalls": "true or false",
    "parent": "the handle of a run",
    "handles": f"a list of 1 to {HANDLES_MAX} handles",
    "mode": "`all` or `any`",
    "timeout": "a number of seconds, 0 or more",
    "handle": "the handle of a run",
    "budgetTokens": "a whole number from 1 to 1000000000",
    "budgetToolCalls": f"a whole number from 0 to {CALLS_MAX}",
    "budgetSeconds": "a number of seconds above 0, at most 31536000",
    "approveTools": "a list of tool names or globs",
    "allow": "true or false",
    "approvalId": "the id of a pending approval",
    "input": "a text that is not empty",
    "labels": f"a list of 2 to {LABELS_MAX} different texts",
    "target": "the name of one of governor.targets",
    "cost": "a number above 0, or an object of units by scope",
    "wait": "a number of seconds, 0 or more",
    "priority": "0, 1 or 2",
    "retry": "true or false",
    "lease": "1 to 128 visible ASCII characters, as quota_reserve named it",
    "fence": "a whole number, as quota_reserve said it",
    "status": "an HTTP status, 100 to 599",
    "headers": "an object of header names and values",
    "body": "a text",
    "actual": "an object of units by scope",
    "sent": "true or false",
}


def parse(model: type[A], tool: str, arguments: dict[str, Any] | None) -> A:
    """The arguments of a call. Raises LuftpauseError `bad_argument` that names each bad one and what is allowed."""
    try:
        return model.model_validate(arguments or {})
    except ValidationError as error:
        names = [field.alias or name for name, field in model.model_fields.items()]
        problems = dict.fromkeys(_problem(problem, names) for problem in error.errors(include_url=False))
        raise LuftpauseError(f"{tool}: " + "; ".join(problems), code="bad_argument", status=400) from None


def _problem(problem: ErrorDetails, names: list[str]) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else "arguments"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name.lower().replace("_", ""), [each.lower() for each in names], 1)
        meant = next((f", did you mean `{each}`?" for each in names if near and each.lower() == near[0]), "")
        allowed = ", ".join(f"`{each}`" for each in names) or "none"
        return f"unknown argument `{name}`{meant} (allowed: {allowed})"
    if problem["type"] == "missing":
        return f"`{name}` is missing: {_ALLOWED[name]}"
    return f"`{name}` can't be {_shown(problem['input'])}; allowed: {_ALLOWED.get(name, problem['msg'])}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:80] + "…"
