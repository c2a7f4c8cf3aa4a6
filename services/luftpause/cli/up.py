"""How does a whole luftpause run on one machine until somebody stops it?"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console

from luftpause.cli import stack, tokens
from luftpause.cli.children import ChildError, Children, Show, supervise
from luftpause.cli.choices import Engine
from luftpause.cli.lines import LinePrinter, own_lines
from luftpause.cli.scratch import scratch
from luftpause.cli.stack import Addresses, Plan
from luftpause.kit import config_watch, serve
from luftpause.kit.auth import TOKEN, from_environment
from luftpause.kit.config import Config
from luftpause.kit.config_watch import Watcher

MODEL_SECONDS_MAX: Final = 15.0  # start grace and first probes


async def up(config: Config, engine: Engine | None, *, announce: Path | None, watcher: Watcher | None = None) -> int:
    """Run the stack until SIGINT or SIGTERM; returns the exit status: 0, or 1 when a part ended by itself. Raises LuftpauseError.

    With `watcher` the scheduler gets the replicas of the file again when they change there.
    """
    stack.check_ports(config)
    console, logs = Console(), Console(stderr=True)
    with scratch() as folder:
        show = LinePrinter(logs)
        children = Children(folder, show)
        plan = Plan(config, engine, folder)
        async with serve.stop_signals() as stop, _following(watcher, plan, stop, show) as follow:
            try:
                await supervise(children, stop, _run(children, plan, console, announce, follow))
            except ChildError as error:
                logs.print(f"\n{error.message}\n", style="bold red", markup=False, highlight=False, soft_wrap=True)
                return 1
            finally:
                with contextlib.suppress(OSError):  # the terminal may be gone
                    logs.print("stopping …", style="dim")
                await children.stop(stop.now)
    return 0


@contextlib.asynccontextmanager
async def _following(watcher: Watcher | None, plan: Plan, stop: serve.Stop, show: Show) -> AsyncGenerator[Callable[[], Awaitable[object]]]:
    """Within the block: what to await for ever once everything runs."""
    if watcher is None:
        yield asyncio.Event().wait
        return
    asked = asyncio.Event()
    with own_lines(show, "up", plan.config.log.level), config_watch.hangups(asked, stop.signal):
        yield functools.partial(config_watch.follow, watcher, functools.partial(stack.take_replicas, plan), asked=asked)


async def _run(
    children: Children, plan: Plan, console: Console, announce: Path | None, follow: Callable[[], Awaitable[object]]
) -> None:  # fmt: skip
    at = await stack.start(children, plan)
    token = from_environment(TOKEN)
    model = await first_model(at, MODEL_SECONDS_MAX, token)
    console.print(_welcome(at, plan.config, model, with_token=bool(token)), markup=False, highlight=False, soft_wrap=True)
    serve.announce(announce, at.as_announced())
    await follow()  # until a signal, or the end of a child


async def first_model(at: Addresses, seconds: float, token: str) -> str | None:
    """A model that the proxy serves, as soon as it serves any within the time."""
    async with httpx.AsyncClient(trust_env=False, timeout=5, headers=tokens.headers(token)) as client:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        answer = await client.get(f"{at.base_url}/models")
                        if answer.is_success and (models := answer.json()["data"]):
                            return str(models[0]["id"])
                    await asyncio.sleep(0.1)  # replicas are known after their first probe; nothing else tells
        except TimeoutError:
            return None


def _welcome(at: Addresses, config: Config, model: str | None, *, with_token: bool) -> str:
    served = model or "(no replica serves a model yet: see the log above)"
    engines = "\n".join(f"  {'engine ' + name:<22}{url}" for name, url in at.engines.items())
    return f"""
luftpause is up; Ctrl-C stops it.

  {"proxy":<22}{at.base_url}
  {"MCP server":<22}{at.mcp}
  {"status page":<22}{at.status}/?runtime={at.mcp.removesuffix("/mcp")}
{engines}
  {"model":<22}{served}
  {"state":<22}{config.runtime.state}

Two commands to try, in another terminal:

{how_to_attach(at, model, with_token=with_token)}
"""


def how_to_attach(at: Addresses, model: str | None, *, with_token: bool) -> str:
    """Two commands: one against the proxy, one that attaches a client over MCP. The shell puts the token in."""
    header = f'"Authorization: Bearer ${TOKEN}"'
    curl, claude = (f" -H {header}", f" --header {header}") if with_token else ("", "")
    body = f'{{"model": "{model or "MODEL"}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'
    return (
        f"  curl {at.base_url}/chat/completions{curl} -H 'content-type: application/json' -d '{body}'\n"
        f"  claude mcp add --transport http --scope local luftpause {at.mcp}{claude}"
    )
