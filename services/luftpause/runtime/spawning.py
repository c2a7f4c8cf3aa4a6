"""What does a spawn's request become, and what is wrong with it?"""

import math
from typing import Final

from luftpause.runtime.core.choose import matches
from luftpause.runtime.core.events import Created
from luftpause.runtime.core.history import DEFAULT_SYSTEM
from luftpause.runtime.core.interpret import nearest
from luftpause.runtime.core.text import whole
from luftpause.runtime.ports import ServiceClass, SpawnRequest, Toolbox
from luftpause.runtime.refusals import bad_argument

GLOB_CHARS: Final = frozenset("*?[")


def check_request(request: SpawnRequest, tools: Toolbox) -> None:
    """Raises LuftpauseError (`bad_argument`) that names the argument and what is allowed."""
    if not request.task.strip():
        raise bad_argument("task", "it is empty; say what the sub-agent is to do")
    if request.max_tool_calls < 0:
        raise bad_argument("maxToolCalls", f"{request.max_tool_calls} is negative; 0 means no tools")
    if request.max_tokens < 0:
        raise bad_argument("maxTokens", f"{request.max_tokens} is negative; 0 leaves the length to the engine")
    _check_budgets(request)
    known = tools.tools()
    if not all(server.connected for server in tools.servers()):
        return  # a tool that is missing now may come
    for argument, patterns in (("tools", request.tools or ()), ("approveTools", request.approve_tools)):
        for pattern in patterns:
            if not any(matches(tool, pattern) for tool in known.values()):
                raise bad_argument(argument, f"no tool is called {pattern!r}; the tools are: {nearest(pattern, known) or 'none'}")


def _check_budgets(request: SpawnRequest) -> None:
    limits = {"budgetTokens": request.budget_tokens, "budgetSeconds": request.budget_seconds}
    for name, limit in limits.items():
        if limit is not None and not 0 < limit < math.inf:
            raise bad_argument(name, f"{limit:g} leaves nothing to work with; give a number above 0, or leave it out for no limit")
    if request.budget_tool_calls is not None and request.budget_tool_calls < 0:
        raise bad_argument("budgetToolCalls", f"{request.budget_tool_calls} is negative; 0 means no tool calls")


def created(request: SpawnRequest, *, handle: str, model: str, service_class: ServiceClass, at: float) -> Created:
    """The run's first event. Texts lose their lone surrogates, which no engine and no journal takes."""
    return Created(
        handle=handle,
        at=at,
        task=whole(request.task),
        model=whole(model),
        service_class=service_class,
        system=DEFAULT_SYSTEM if request.system is None else whole(request.system),
        max_tool_calls=request.max_tool_calls,
        max_tokens=request.max_tokens,
        tools=None if request.tools is None else tuple(whole(pattern) for pattern in request.tools),
        parallel_tool_calls=request.parallel_tool_calls,
        parent=request.parent,
        caller=whole(request.caller),
        owner=None if request.owner is None else whole(request.owner),
        traceparent=whole(request.traceparent),
        budget_tokens=request.budget_tokens,
        budget_tool_calls=request.budget_tool_calls,
        budget_seconds=request.budget_seconds,
        approve_tools=tuple(whole(pattern) for pattern in request.approve_tools),
        tool_call_id=whole(request.tool_call_id),
        task_id=request.task_id,
        spawned_by=whole(request.spawned_by),
    )
