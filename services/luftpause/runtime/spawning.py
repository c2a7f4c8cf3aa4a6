"""What does a spawn's request become, and what is wrong with it?"""

import asyncio
from collections.abc import Sequence
from typing import Final

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.choose import matches
from luftpause.runtime.core.events import Created
from luftpause.runtime.core.history import DEFAULT_SYSTEM
from luftpause.runtime.core.interpret import nearest
from luftpause.runtime.core.text import whole
from luftpause.runtime.ports import ModelClient, ServiceClass, SpawnRequest, Toolbox, TurnError
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
    known = tools.tools()
    if not all(server.connected for server in tools.servers()):
        return  # a tool that is missing now may come
    for pattern in request.tools or ():
        if not any(matches(tool, pattern) for tool in known.values()):
            raise bad_argument("tools", f"no tool is called {pattern!r}; the tools are: {nearest(pattern, known) or 'none'}")


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
    )


class Models:
    """Which model serves a spawn that names none? Spawns at the same time share one question to the dataplane."""

    def __init__(self, client: ModelClient, default: str | None) -> None:
        self._client = client
        self._default = default
        self._asking: asyncio.Task[tuple[str, ...]] | None = None

    async def choose(self, asked: str | None) -> str:
        """Raises LuftpauseError (`unknown_model`, `dataplane_unreachable`)."""
        if chosen := asked or self._default:
            return chosen
        try:
            served = await self._served()
        except TurnError as error:
            raise LuftpauseError(
                f"can't ask the dataplane which models are served: {error.message}; see that it is up, or name a model",
                code="dataplane_unreachable",
                status=502,
            ) from error
        if len(served) == 1:
            return served[0]
        raise LuftpauseError(_which(served), code="unknown_model", status=400)

    async def _served(self) -> tuple[str, ...]:
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> tuple[str, ...]:
        try:
            return await self._client.models()
        finally:
            self._asking = None


def _which(served: Sequence[str]) -> str:
    if not served:
        return "model: no generative model is served; start an engine, or name a model that will be"
    return f"model: several are served; name one of {', '.join(sorted(served))}, or set runtime.default_model"
