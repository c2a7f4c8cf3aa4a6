"""Which tools can sub-agents call now, and where does a call go?"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import mcp_types as types

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.core.engine_schema import for_engines, without_nulls
from luftpause.runtime.ports import Json, ServerState, ToolResult, ToolSpec
from luftpause.runtime.tools.names import engine_names
from luftpause.runtime.tools.results import printable
from luftpause.runtime.tools.supervisor import Supervisor

NAMES_KEPT_MAX: Final = 10_000


class Tools:
    """The `Toolbox` of ports.py over the configured MCP servers. An async context manager; entering waits for none of them."""

    def __init__(self, config: RuntimeConfig) -> None:
        self._supervisors = {name: Supervisor(name, server, config, self._changed) for name, server in config.servers.items()}
        self._offered: dict[str, ToolSpec] = {}
        self._away: dict[str, ToolSpec] = {}
        self._told: list[Callable[[], None]] = []
        self._given: dict[str, tuple[str, str]] = {}  # every name that engines were told, so that a run may go on using it

    async def __aenter__(self) -> Self:
        for supervisor in self._supervisors.values():
            supervisor.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors.values()))

    def tools(self) -> Mapping[str, ToolSpec]:
        return self._offered

    def away(self) -> Mapping[str, ToolSpec]:
        return self._away

    def servers(self) -> tuple[ServerState, ...]:
        return tuple(supervisor.state() for supervisor in self._supervisors.values())

    def on_change(self, tell: Callable[[], None]) -> None:
        self._told.append(tell)

    async def ready(self, seconds_max: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await asyncio.gather(*(supervisor.connected() for supervisor in self._supervisors.values()))

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> ToolResult:
        server, tool = self._given.get(name, ("", ""))
        supervisor = self._supervisors.get(server)
        if supervisor is None:
            return ToolResult(f"Error: there is no tool {name}", failed=True)
        return await supervisor.call(tool, arguments, traceparent)

    def _changed(self) -> None:
        """Names come from all known tools, also those of servers that are away: a server's return renames nothing."""
        known = {(supervisor.name, tool.name): tool for supervisor in self._supervisors.values() for tool in supervisor.known}
        names = engine_names(known)
        up = {state.name for state in self.servers() if state.connected}
        specs = sorted((_spec(names[key], key[0], tool) for key, tool in known.items()), key=lambda spec: spec.name)
        before, self._offered = self._offered, {spec.name: spec for spec in specs if spec.server in up}
        self._away = {spec.name: spec for spec in specs if spec.server not in up}
        if before != self._offered:
            for tell in self._told:
                tell()
        self._given.update({name: key for key, name in names.items()})
        while len(self._given) > NAMES_KEPT_MAX:
            del self._given[next(iter(self._given))]


def _spec(name: str, server: str, tool: types.Tool) -> ToolSpec:
    hints = tool.annotations or types.ToolAnnotations()
    schema: Json = {"type": "object", "properties": {}, **without_nulls(tool.input_schema)}
    return ToolSpec(
        name=name,
        server=server,
        original=tool.name,
        description=printable(tool.description or tool.title or hints.title or ""),
        input_schema=schema,
        parameters=for_engines(schema),
        read_only=bool(hints.read_only_hint),
        idempotent=bool(hints.idempotent_hint),
        destructive=bool(hints.destructive_hint),
    )
