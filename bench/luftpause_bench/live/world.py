"""Which processes does a benchmark with real processes have, and how are they started and stopped?

    def main(arguments):
        …
        found = run(lambda world: measure(world, options))

    async def measure(world, options):
        engines = await world.engines(2, "--kv-tokens", "32000")
        plane = await world.luftpause(engines, scheduler={"policy": "guard"})

Everything listens on ports that the system chooses (programs of others: on free ones) and is stopped in the end. When a luftpause process
ends by itself, or somebody presses Ctrl-C, the benchmark ends with a LuftpauseError that says what the process said last.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from luftpause.cli import stack
from luftpause.cli.children import Child, Children, supervise
from luftpause.cli.up import MODEL_SECONDS_MAX
from luftpause.kit import serve
from luftpause.kit.config import Config
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.programs import Program, wait_until

MODEL: Final = "fake-1b"
CLASSIFIER: Final = "fake-classifier"
Json = dict[str, Any]
T = TypeVar("T")


class Plane(Struct, frozen=True):
    """A running scheduler and dataplane. URLs have no trailing slash; `pids` by service."""

    http: str
    status: str
    pids: dict[str, int]

    @property
    def base_url(self) -> str:
        return f"{self.http}/v1"


class World:
    """The processes of one benchmark; names are unique in it."""

    def __init__(self, children: Children, folder: Path) -> None:
        self.folder = folder
        self._children = children
        self._programs: list[Program] = []
        self._configs: dict[str, Json] = {}  # of schedulers

    async def engine(self, name: str, *options: str, model: str = MODEL) -> str:
        """A fake engine; its URL."""
        return (await self.engines(1, *options, name=name, model=model))[0]

    async def engines(self, count: int, *options: str, name: str = "engines", model: str = MODEL) -> list[str]:
        """Fake engines on one GPU: n at work are n times slower. Their URLs."""
        at = await self._children.start(name, "fake-engine", "--port", "0", "--model", model, "--engines", str(count), *options)
        return [at["http"], *(at[f"http-{number}"] for number in range(1, count))]

    async def llama(self, name: str, *options: str) -> tuple[str, int]:
        """A real llama.cpp; its URL and its process id."""
        child = await self._children.launch(name, "llama-engine", "--port", "0", *options)
        return (await self._children.ready(child))["http"], child.process.pid

    async def tools(self, *options: str, name: str = "tools") -> str:
        """The fake MCP server; its MCP URL."""
        return (await self._children.start(name, "fake-mcp", "--port", "0", *options))["mcp"]

    async def provider(self, *options: str, name: str = "provider") -> str:
        """A fake provider; its URL."""
        return (await self._children.start(name, "fake-provider", "--port", "0", *options))["http"]

    async def governor(self, section: Json, *, name: str = "governor", one_process: bool = False) -> Plane:
        """Scheduler and dataplane, each a process unless `one_process`, with these settings of the governor and no replicas."""
        config: Json = {"governor": section, "scheduler": {"grpc_port": 0, "http_port": 0}, "log": {"level": "warning"}}
        if one_process:
            config["dataplane"] = {"port": 0, "name": name}
            both = await self._service(name, "dataplane", config, "--with-scheduler")
            plane = Plane(both.at["http"], both.at["status"], {"dataplane": both.process.pid})
        else:
            first = await self._service(f"{name}-scheduler", "scheduler", config)
            config["dataplane"] = {"port": 0, "name": name, "scheduler": first.at["grpc"]}
            second = await self._service(f"{name}-dataplane", "dataplane", config)
            plane = Plane(second.at["http"], first.at["http"], {"scheduler": first.process.pid, "dataplane": second.process.pid})
        await wait_until(f"{plane.http}/v1/quota", MODEL_SECONDS_MAX, what=f"{name} answers no questions about quotas")
        return plane

    async def luftpause(
        self,
        engines: Sequence[str],
        *,
        name: str = "luftpause",
        replica: Mapping[str, Any] | None = None,
        more: Sequence[Json] = (),
        scheduler: Mapping[str, Any] | None = None,
        dataplane: Mapping[str, Any] | None = None,
        one_process: bool = False,
    ) -> Plane:
        """
        Scheduler and dataplane, each a process unless `one_process`, once they serve a model. `replica`: settings of each engine; `more`:
        other replicas.
        """
        replicas = [{"name": f"engine-{number}", "url": url, "load": "sglang", **(replica or {})} for number, url in enumerate(engines)]
        config: Json = {
            "replicas": [*replicas, *more],
            "scheduler": {"grpc_port": 0, "http_port": 0, "dataplanes_expected": [name], **(scheduler or {})},
            "log": {"level": "warning"},
        }
        if one_process:
            config["dataplane"] = {"port": 0, "name": name, **(dataplane or {})}
            both = await self._service(name, "dataplane", config, "--with-scheduler")
            return await self._serving(Plane(both.at["http"], both.at["status"], {"dataplane": both.process.pid}), name)
        first = await self._service(f"{name}-scheduler", "scheduler", config)
        self._configs[name] = dict(config)
        config["dataplane"] = {"port": 0, "name": name, "scheduler": first.at["grpc"], **(dataplane or {})}
        second = await self._service(f"{name}-dataplane", "dataplane", config)
        pids = {"scheduler": first.process.pid, "dataplane": second.process.pid}
        return await self._serving(Plane(second.at["http"], first.at["http"], pids), name)

    async def _serving(self, plane: Plane, name: str) -> Plane:
        await wait_until(f"{plane.base_url}/models", MODEL_SECONDS_MAX, needs=b'"id"', what=f"{name} serves no model")
        return plane

    def change_replicas(self, name: str = "luftpause", **settings: Any) -> None:
        """Write these settings of each replica into the file that the scheduler follows; it reads them within some seconds."""
        config = self._configs[name]
        self._written(f"{name}-scheduler", {**config, "replicas": [{**each, **settings} for each in config["replicas"]]})

    async def runtime(self, turns_at: str, tools: str, *, name: str = "runtime", **settings: Any) -> tuple[str, int]:
        """The runtime whose turns go to `turns_at` (a dataplane, or a router alone); its MCP URL and its process id."""
        child = await self._service(name, "runtime", self._of_runtime(turns_at, tools, name, settings))
        return child.at["mcp"], child.process.pid

    def _of_runtime(self, turns_at: str, tools: str, name: str, settings: Mapping[str, Any]) -> Json:
        own: Json = {
            "port": 0, "dataplane": turns_at, "state": str(self.folder / name), "default_model": MODEL,
            "servers": {"tools": {"url": tools}}, **settings,
        }  # fmt: skip
        return {"runtime": own, "log": {"level": "warning"}}

    def runtime_file(self, turns_at: str, tools: str, *, name: str, **settings: Any) -> Path:
        """The configuration of a runtime that is started otherwise (`program`)."""
        return self._written(name, self._of_runtime(turns_at, tools, name, settings))

    async def program(self, name: str, words: Sequence[str], environ: Mapping[str, str] | None = None) -> Program:
        """A program that isn't luftpause."""
        program = await Program.start(name, words, self.folder / f"{name}.log", environ)
        self._programs.append(program)
        return program

    async def stop(self, now: asyncio.Event) -> None:
        for program in reversed(self._programs):
            await program.stop()
        await self._children.stop(now)

    async def _service(self, name: str, command: str, config: Json, *options: str) -> Child:
        child = await self._children.launch(name, command, "--config", str(self._written(name, config)), *options)
        await self._children.ready(child)
        return child

    def _written(self, name: str, config: Json) -> Path:
        path = self.folder / f"{name}.yaml"
        stack.write(Config.model_validate(config), path)
        return path


@contextlib.asynccontextmanager
async def world(stop: serve.Stop) -> AsyncGenerator[tuple[World, Children]]:
    """A new world, empty; all in it is stopped when the block is left."""
    with tempfile.TemporaryDirectory(prefix="luftpause-bench-") as folder:
        children = Children(Path(folder), lambda _name, _line: None)
        made = World(children, Path(folder))
        try:
            yield made, children
        finally:
            await made.stop(stop.now)


def run(work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns, in a world of its own. Raises what it raises, and LuftpauseError (`child_ended`, `interrupted`)."""
    return asyncio.run(_run(work))


async def _run(work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    async with serve.stop_signals() as stop, world(stop) as (made, children):
        result = await supervise(children, stop, _boxed(work(made)))
    if result is None:
        raise LuftpauseError("interrupted; everything is stopped", code="interrupted")
    return result[0]


async def _boxed(work: Coroutine[Any, Any, T]) -> tuple[T]:
    """So that a result of None is told from an interruption."""
    return (await work,)
