"""How do the tools introduce themselves: names, schemas, annotations?"""

from collections.abc import Collection
from typing import Any, Final, cast

import mcp_types as types

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools import outputs
from luftpause.runtime.mcp_tools.arguments import (
    ApproveArguments,
    Arguments,
    AwaitArguments,
    CancelArguments,
    DecideArguments,
    NoArguments,
    SpawnArguments,
    StatusArguments,
)
from luftpause.runtime.mcp_tools.quota_arguments import QuotaReportArguments, QuotaReserveArguments
from luftpause.runtime.ports import Json

INSTRUCTIONS: Final = """\
luftpause runs sub-agents: a model with tools that works on one task and returns an answer. They run side by side and survive restarts.

How to use it well:
- Several independent tasks: call `spawn` once for each, then `await` once with all handles. Do not await one after another.
- One task whose answer you need now: `run`.
- A sub-agent sees only its `task` (and `system`): put into it everything it needs, and say what form the answer should have.
- `await` returns after `timeout` seconds at the latest. If some are still Running, call `await` again with their handles; nothing is lost.
- Look at `failedToolCalls`, `state` and the answer itself. If one is poor or Failed, spawn it again with a clearer task or another model.
- `tools` lists what sub-agents can use. Limit them with the argument `tools` where only some are needed.
- `cancel` what you no longer need: it also cancels what that run has spawned.
- A run that is AwaitingApproval waits for a person's consent. Ask the user, then answer with `approve`; never decide it yourself.
- To sort or label one text use `decide`: it is much cheaper than a sub-agent.
- Before you call an API whose quota is shared use `quota_reserve`, and `quota_report` afterwards: others then see what is left.
"""

TOOL_NAMES_MAX: Final = 50

_SPAWNING: Final = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
_READING: Final = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
# An allowed call has whatever effect the tool has; the first decision stands.
_APPROVING: Final = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True)
# Asked again with the same lease it stays the same.
_RESERVING: Final = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_DECIDING: Final = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
# Work in progress is thrown away for good; a second cancel changes nothing more.
_CANCELLING: Final = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def definitions(config: RuntimeConfig, upstream: Collection[str] = ()) -> tuple[types.Tool, ...]:
    """The tools as `tools/list` shows them. `upstream`: names of the tools that sub-agents can use now."""
    spawn_defaults = {"maxToolCalls": config.max_tool_calls, "maxTokens": config.max_tokens, "parallelToolCalls": False}
    await_defaults = {"mode": "all", "timeout": min(config.await_seconds, config.await_seconds_max)}
    reserve_defaults = {"wait": await_defaults["timeout"], "retry": False}
    spawn = _schema(SpawnArguments, spawn_defaults)
    spawn["properties"]["tools"]["description"] += _available(upstream)
    awaiting = _schema(AwaitArguments, await_defaults)
    reserving = _schema(QuotaReserveArguments, reserve_defaults)
    for schema, name in ((awaiting, "timeout"), (reserving, "wait")):
        schema["properties"][name]["maximum"] = config.await_seconds_max
    return (
        _tool(
            "spawn", "Spawn a sub-agent", spawn, outputs.RUN, _SPAWNING,
            "Starts a sub-agent and returns its handle at once. Spawn all you need, then call await once with all handles.",
        ),
        _tool(
            "await", "Wait for sub-agents", awaiting, outputs.RUNS, _READING,
            "Waits until all (or any) of these runs have ended, or the timeout is over, and returns the state of each: its answer or error,"
            " and what it took. Waiting again is free; the runs go on in any case.",
        ),
        _tool(
            "run", "Run a sub-agent and wait for it", spawn, outputs.RUN, _SPAWNING,
            "Starts a sub-agent and waits for its answer, in one call. For several at once use spawn and await.",
        ),
        _tool(
            "status", "Show runs", _schema(StatusArguments, {}), outputs.RUNS, _READING,
            "Shows one run, or all of yours, without waiting.",
        ),
        _tool(
            "cancel", "Cancel a run", _schema(CancelArguments, {}), outputs.RUN, _CANCELLING,
            "Cancels a run and all its unfinished descendants; their work is lost. A run that has ended stays as it is.",
        ),
        _tool(
            "approve", "Answer a pending approval", _schema(ApproveArguments, {}), outputs.DECIDED, _APPROVING,
            "Allows or declines the tool call that a run in state AwaitingApproval waits for. Ask the user first: the decision is theirs.",
        ),
        _tool(
            "tools", "List the tools of sub-agents", _schema(NoArguments, {}), outputs.TOOLS, _READING,
            "Lists the tools that sub-agents can use, and which tool servers are not connected now.",
        ),
        _tool(
            "decide", "Choose a label for a text", _schema(DecideArguments, {}), outputs.DECISION, _DECIDING,
            "Chooses which of 2 to 20 labels fits a text, with probabilities, in one pass of a model; without labels a classifier's own.",
        ),
        _tool(
            "quota_reserve", "Ask for quota of an API", reserving, outputs.RESERVED, _RESERVING,
            "Asks for leave to make one call to an API whose quota is shared, and waits for it. Granted: make the call, then quota_report."
            " Not granted: don't call, ask again after retryMs with the same lease.",
        ),
        _tool(
            "quota_report", "Tell what became of a call", _schema(QuotaReportArguments, {"sent": True}), outputs.REPORTED, _RESERVING,
            "Tells how a call ended that quota_reserve granted: its status and what its headers say of limits. Says when to try again.",
        ),
    )  # fmt: skip


def _available(names: Collection[str]) -> str:
    if not names:
        return ""
    shown = sorted(names)[:TOOL_NAMES_MAX]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f" There are now: {', '.join(shown)}{more}."


def _tool(name: str, title: str, inputs: Json, outputs: Json, annotations: types.ToolAnnotations, description: str) -> types.Tool:
    return types.Tool(name=name, title=title, description=description, input_schema=inputs, output_schema=outputs, annotations=annotations)


def _schema(model: type[Arguments], defaults: Json) -> Json:
    """The model's JSON schema, plain: an optional argument is one that may be left out."""
    properties: dict[str, Json] = {}
    for name, declared in cast("dict[str, Json]", model.model_json_schema(by_alias=True).get("properties", {})).items():
        plain = _plain(declared)
        if name in defaults:
            plain["default"] = defaults[name]
        properties[name] = plain
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _plain(declared: Json) -> Json:
    """Without titles, `null` branches and null defaults."""
    plain: Json = {key: value for key, value in declared.items() if key not in {"title", "default", "anyOf"}}
    branches = cast("list[Json]", declared.get("anyOf", []))
    for branch in branches:
        if branch.get("type") != "null":
            plain = {**_plain(branch), **plain}
    items: Any = plain.get("items")
    if isinstance(items, dict):
        plain["items"] = _plain(cast("Json", items))
    return plain
