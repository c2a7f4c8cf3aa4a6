"""Which run does a call of `spawn` or `run` ask for?"""

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools.arguments import SpawnArguments
from luftpause.runtime.mcp_tools.caller import Context, caller_of, owner_of, tool_call_id_of, traceparent_of
from luftpause.runtime.ports import Joins, ServiceClass, SpawnRequest


class Spawning:
    """`joins` tells which run of the dataplane made the tool call that a request comes from."""

    def __init__(self, config: RuntimeConfig, joins: Joins | None = None) -> None:
        self._config = config
        self._joins = joins

    async def request(self, ctx: Context, given: SpawnArguments, *, task_id: str | None = None) -> SpawnRequest:
        """The arguments with their defaults, and who asks. `task_id`: of the MCP task that the run will be seen as."""
        config = self._config
        call = tool_call_id_of(ctx)
        by = await self._joins.run_of_call(call) if call and self._joins is not None else ""
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
            caller=caller_of(ctx, by),
            owner=owner_of(ctx),
            traceparent=traceparent_of(ctx),
            budget_tokens=given.budget_tokens,
            budget_tool_calls=given.budget_tool_calls,
            budget_seconds=given.budget_seconds,
            approve_tools=tuple(given.approve_tools or ()),
            tool_call_id=call,
            task_id=task_id,
            spawned_by=by,
        )
