"""How does a test run a whole luftpause on free ports, and take single parts of it down and up again?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.ports import a_quiet_port
from tests.support.processes import Process, start, stop_all

READY_SECONDS = 60.0
PLACES_WHEN_ALL_ARE_HERE: dict[str, Any] = {"dataplanes_expected": ["dataplane"], "start_grace_seconds": READY_SECONDS}


class Stack:
    """Engines, tools and the three services, each a process of its own; one that is started again has the port of its earlier life."""

    def __init__(self, folder: Path, engines: Sequence[Process], tools: Process, runtime: dict[str, Any]) -> None:
        self.folder = folder
        self.engines = engines
        self.tools = tools
        self.services: dict[str, Process] = {}
        self.config: dict[str, Any] = {
            "replicas": [{"name": f"engine-{i}", "url": engine.at["http"], "load": "sglang"} for i, engine in enumerate(engines)],
            "scheduler": {"grpc_port": a_quiet_port(), "http_port": a_quiet_port(), **PLACES_WHEN_ALL_ARE_HERE},
            "dataplane": {"port": a_quiet_port()},
            "runtime": {"port": a_quiet_port(), "state": str(folder / "state"), "servers": {"tools": {"url": tools.at["mcp"]}}, **runtime},
        }

    @property
    def base_url(self) -> str:
        return self.services["dataplane"].at["http"] + "/v1"

    @property
    def mcp(self) -> str:
        return self.services["runtime"].at["mcp"]

    async def start(self, name: str) -> None:
        """Start a service, or start it again on its ports."""
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(self.config))
        service = await start(name, "--config", str(path), folder=self.folder)
        self.services[name] = service
        if name == "scheduler":
            self.config["dataplane"] |= {"scheduler": service.at["grpc"].rpartition("/")[2]}
        elif name == "dataplane":
            self.config["runtime"] |= {"dataplane": service.at["http"]}

    async def kill(self, name: str) -> None:
        """kill -9, and wait for the end."""
        self.services[name].kill()
        await self.services[name].process.wait()

    async def ready(self) -> str:
        """Waits until a model is served; returns its name."""
        async with httpx.AsyncClient(trust_env=False, timeout=READY_SECONDS) as client, asyncio.timeout(READY_SECONDS):
            while True:
                answer = await client.get(f"{self.base_url}/models")
                if answer.is_success and (models := answer.json()["data"]):
                    return str(models[0]["id"])
                await asyncio.sleep(0.05)  # replicas are known after their first probe; nothing else tells

    async def tool_counts(self) -> dict[str, Any]:
        """How often the fake tools' calls were started and finished."""
        async with httpx.AsyncClient(trust_env=False, timeout=READY_SECONDS) as client:
            return (await client.get(f"{self.tools.at['http']}/_fake")).json()


@contextlib.asynccontextmanager
async def stack(
    folder: Path,
    *,
    engine: Sequence[str] = (),
    tools: Sequence[str] = (),
    runtime: dict[str, Any] | None = None,
    scheduler: dict[str, Any] | None = None,
    governor: dict[str, Any] | None = None,
) -> AsyncGenerator[Stack]:
    """Two fake engines, fake tools and the services, ready to answer; `engine` and `tools` are further options of the fakes."""
    fakes: list[Process] = []
    try:
        commands = [("fake-engine", "--port", "0", *engine)] * 2 + [("fake-mcp", "--port", "0", *tools)]
        started = await asyncio.gather(*(start(*command, folder=folder) for command in commands), return_exceptions=True)
        fakes = [each for each in started if isinstance(each, Process)]
        assert len(fakes) == len(commands), started
        whole = Stack(folder, fakes[:2], fakes[2], runtime or {})
        whole.config["scheduler"] |= scheduler or {}
        whole.config["governor"] = governor or {}
        try:
            for name in ("scheduler", "dataplane", "runtime"):
                await whole.start(name)
            await whole.ready()
            yield whole
        finally:
            await stop_all(reversed(whole.services.values()))
    finally:
        await stop_all(fakes)
