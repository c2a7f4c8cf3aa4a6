"""Which run does a call of `spawn` or `run` ask for?"""

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools.arguments import SpawnArguments
from luftpause.runtime.mcp_tools.caller import Context, caller_of, owner_of, tool_call_id_of, traceparent_of
from luftpause.runtime.ports import ServiceClass, SpawnRequest


def spawn_request(config: RuntimeConfig, ctx: Context, given: SpawnArguments, *, task_id: str | None = None) -> SpawnRequest:
    """The arguments with their defaults, and who asks. `task_id`: of the MCP task that the run will be seen as."""
    return SpawnRequest(
        task=given.task,
        model=given.model,
        service_class=ServiceClass(given.service_class) if given.service_class else None,
        system=given.system,
        max_tool_calls=config.max_tool_calls if given.max_tool_calls is None else given.max_tool_calls,
        tools=None if given.tools is None else tuple(given.tools),
        max_tokens=config.max_tokens if given.max_tokens is None else given.max_tokens,
        parallel_tool_calls=bool(given.parallel_tool_calls),
        parent=given.parent,
        caller=caller_of(ctx),
        owner=owner_of(ctx),
        traceparent=traceparent_of(ctx),
        budget_tokens=given.budget_tokens,
        budget_tool_calls=given.budget_tool_calls,
        budget_seconds=given.budget_seconds,
        approve_tools=tuple(given.approve_tools or ()),
        tool_call_id=tool_call_id_of(ctx),
        task_id=task_id,
    )
