"""Does a real client, Claude Code or Codex, get on with a running luftpause?

    python tools/clients/drive.py claude|codex [--mcp http://127.0.0.1:7000/mcp]
    python tools/clients/drive.py claude|codex --proxy http://127.0.0.1:8080 --model NAME --prompt TEXT [--mcp URL] [--requests FILE]

Runs the client with a home directory of its own and prints its last message and `rc=N`. Without `--proxy` the client's model is a scripted
endpoint that spawns a sub-agent over MCP, or does what `--script` says; `script_seconds=N` is the time from first to last step. With
`--proxy` the client's model requests go to luftpause, and what they were is appended to FILE as JSON lines. `claude-list` registers
luftpause with Claude Code and prints `claude mcp list`. Exit status 3: the client is not installed (tools/clients/install.sh).
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import endpoints
import httpx
import uvicorn
from recorder import Recorder
from starlette.applications import Starlette

PROMPT = "Have a luftpause sub-agent look one fact up and say what it found."
SECONDS_MAX = 120
SCRIPT: list[endpoints.Step] = [
    {"tool": "spawn", "input": {"task": "Look up one fact about tides.", "maxToolCalls": 3, "serviceClass": "interactive"}},
    {"tool": "await", "input": {"handles": ["$handle"], "timeout": 45}},
    {"text": "The sub-agent finished: $last"},
]


@dataclass(frozen=True)
class Asked:
    """What is to be tried. `mcp` None: without luftpause's tools. `proxy` None: the model is the script."""

    clients: Path
    prompt: str
    model: str
    mcp: str | None
    proxy: str | None
    requests: Path | None
    bare: bool
    script: list[endpoints.Step]
    settings: Path | None


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("client", choices=("claude", "claude-list", "codex"))
    arguments.add_argument("--mcp", help="URL of the runtime; http://127.0.0.1:7000/mcp where the model is the script")
    arguments.add_argument("--clients", type=Path, default=default_folder(), help="where install.sh put the CLIs")
    arguments.add_argument("--proxy", help="URL of the dataplane, without /v1")
    arguments.add_argument("--model", default="claude-sonnet-4-5", help="any will do for the script")
    arguments.add_argument("--prompt", default=PROMPT)
    arguments.add_argument("--requests", type=Path, help="file to append what was asked of the proxy")
    arguments.add_argument("--bare", action="store_true", help="the proxy gets no header by which the client names its session")
    arguments.add_argument("--script", type=Path, help="JSON file with the steps of the scripted model (endpoints.py)")
    arguments.add_argument("--settings", type=Path, help="settings of Claude Code, for example hooks")
    given = arguments.parse_args()
    program = given.clients / "node_modules/.bin" / given.client.removesuffix("-list")
    if not program.exists():
        print(f"{program} is missing: run tools/clients/install.sh", file=sys.stderr)
        return 3
    mcp = given.mcp or (None if given.proxy else "http://127.0.0.1:7000/mcp")
    asked = Asked(
        given.clients, given.prompt, given.model, mcp, given.proxy, given.requests, given.bare, _script(given.script), given.settings
    )
    drivers = {"claude": _claude, "claude-list": _claude_list, "codex": _codex}
    with tempfile.TemporaryDirectory(prefix="luftpause-client-") as folder:
        status, said = asyncio.run(drivers[given.client](Path(folder), asked))
    print(said)
    print(f"rc={status}")
    return status


def _script(path: Path | None) -> list[endpoints.Step]:
    return SCRIPT if path is None else json.loads(path.read_text())


def default_folder() -> Path:
    return Path(os.environ.get("LUFTPAUSE_CLIENTS") or Path.home() / ".cache/luftpause/clients")


async def _claude(folder: Path, asked: Asked) -> tuple[int, str]:
    config = folder / "mcp.json"
    servers = {endpoints.SERVER: {"type": "http", "url": asked.mcp}} if asked.mcp else {}
    config.write_text(json.dumps({"mcpServers": servers}))
    tools = ",".join(f"mcp__{endpoints.SERVER}__{name}" for name in ("spawn", "await", "run", "status", "approve"))
    settings = CLAUDE | (ASIDE if asked.proxy else QUIET)
    async with _model(asked, endpoints.anthropic(asked.script)) as model:
        status, out = await _run(folder, asked.clients, {**settings, "ANTHROPIC_BASE_URL": model}, [
            "claude", "-p", asked.prompt, "--model", asked.model, "--mcp-config", str(config), "--strict-mcp-config",
            "--allowedTools", f"{tools},Agent,Bash,Read", "--output-format", "stream-json", "--verbose",
            *(("--settings", str(asked.settings.resolve())) if asked.settings else ()),
        ])  # fmt: skip
    results = [str(event["result"]) for event in _events(out) if event.get("type") == "result" and "result" in event]
    return status, results[-1] if results else out


async def _claude_list(folder: Path, asked: Asked) -> tuple[int, str]:
    env = CLAUDE | QUIET
    added, out = await _run(
        folder, asked.clients, env, ["claude", "mcp", "add", "--transport", "http", "--scope", "local", endpoints.SERVER, str(asked.mcp)]
    )
    if added:
        return added, out
    return await _run(folder, asked.clients, env, ["claude", "mcp", "list"])


CLAUDE = {
    "ANTHROPIC_API_KEY": "not-a-key", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1", "ENABLE_TOOL_SEARCH": "false", "MCP_TIMEOUT": "20000", "MCP_TOOL_TIMEOUT": "60000",
}  # fmt: skip
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
ASIDE = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1"}


async def _codex(folder: Path, asked: Asked) -> tuple[int, str]:
    async with _model(asked, endpoints.responses(asked.script)) as model:
        config = folder / "home/.codex/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"""
model = "{asked.model}"
model_provider = "tried"
approval_policy = "never"
sandbox_mode = "read-only"
[model_providers.tried]
name = "tried"
base_url = "{model}/v1"
wire_api = "responses"
requires_openai_auth = false
""")
        if asked.mcp:
            with config.open("a") as more:
                more.write(f"""
[mcp_servers.{endpoints.SERVER}]
url = "{asked.mcp}"
tool_timeout_sec = 60
startup_timeout_sec = 20
default_tools_approval_mode = "approve"
""")
        status, out = await _run(folder, asked.clients, {}, ["codex", "exec", "--skip-git-repo-check", "--json", asked.prompt])
    items: list[dict[str, Any]] = [event.get("item", {}) for event in _events(out)]
    said = [str(item["text"]) for item in items if item.get("type") == "agent_message"]
    return status, said[-1] if said else out


@contextlib.asynccontextmanager
async def _model(asked: Asked, script: Starlette) -> AsyncGenerator[str]:
    """URL of what the client takes for its model."""
    if asked.proxy is None:
        async with _serving(script) as url:
            yield url
        times: list[float] = script.state.times
        if times:
            print(f"script_seconds={times[-1] - times[0]:.2f}")
        return
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS_MAX) as http:
        recorder = Recorder(asked.proxy, http, bare=asked.bare)
        async with _serving(recorder.app()) as url:
            yield url
    if asked.requests:
        with asked.requests.open("a") as out:
            out.writelines(json.dumps(each) + "\n" for each in recorder.seen)


def _events(out: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in out.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            events += [event] if isinstance(event, dict) else []
    return events


async def _run(folder: Path, clients: Path, env: Mapping[str, str], command: Sequence[str]) -> tuple[int, str]:
    """Nothing of the user's own environment, home or folder reaches the client."""
    modules = clients / "node_modules"
    (folder / "home").mkdir(exist_ok=True)
    (folder / "project").mkdir(exist_ok=True)
    path = f"{modules}/node/bin:{modules}/.bin:{os.environ.get('PATH', '/usr/bin:/bin')}"
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder / "project", env={"HOME": str(folder / "home"), "PATH": path, **env},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS_MAX):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"{command[0]} did not end within {SECONDS_MAX} s"
    return process.returncode or 0, out.decode(errors="replace")


@contextlib.asynccontextmanager
async def _serving(app: Starlette) -> AsyncGenerator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([sock]))
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


if __name__ == "__main__":
    sys.exit(main())
