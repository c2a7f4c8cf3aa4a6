"""Do the real Claude Code and Codex finish their tool loops with the proxy as their model, each session and sub-agent one run?

The fake engines behind it call the clients' own tools, and luftpause's; nothing between them is scripted.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from luftpause.scheduler.replay import replay
from tests.conftest import missing
from tests.support.cluster import turns_in
from tests.support.processes import Process, running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
DRIVE = Path(__file__).resolve().parents[2] / "tools/clients/drive.py"
TURNS = {"claude": "/v1/messages", "codex": "/v1/responses"}
SHELL = {
    "claude": 'tool=Bash args={"command":"echo from-the-shell","description":"x"}',
    "codex": 'tool=exec_command args={"cmd":"echo from-the-shell"}',
}
Json = dict[str, Any]


@dataclass
class Tried:
    """What a client said, and what it asked of the proxy."""

    said: str
    requests: list[Json]

    def turns(self, client: str) -> list[Json]:
        return [each for each in self.requests if each["path"] == TURNS[client]]

    def failed(self) -> list[Json]:
        return [each for each in self.requests if each["status"] >= 400]


class Town:
    """`luftpause up` as it is, its scheduler writing down what happened."""

    def __init__(self, folder: Path, stack: Process) -> None:
        self.folder = folder
        self.stack = stack

    async def drive(self, client: str, prompt: str, *, mcp: bool = False, bare: bool = False) -> Tried:
        told = self.folder / f"requests-{client}.jsonl"
        told.unlink(missing_ok=True)
        options = (*(("--mcp", self.stack.at["mcp"]) if mcp else ()), *(("--bare",) if bare else ()))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(DRIVE), client, "--proxy", self.stack.at["http"], "--model", "fake-1b", "--prompt", prompt,
            "--requests", str(told), *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 200)
        if process.returncode == 3:
            missing("the client CLIs", "tools/clients/install.sh")
        said = out.decode()
        assert said.splitlines()[-1] == "rc=0", said
        return Tried(said, [json.loads(line) for line in told.read_text().splitlines()])

    async def nothing_left(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http, asyncio.timeout(60):
            while turns_in((await http.get(self.stack.at["status"] + "/status")).json()):
                await asyncio.sleep(0.05)  # another process's state; nothing tells when it changes
            for engine in ("engine-a", "engine-b"):
                seen = (await http.get(self.stack.at[engine] + "/_fake")).json()
                assert (seen["running"], seen["waiting"], seen["bad"]) == (0, 0, 0)
                assert not [name for name in seen["headers"] if "claude" in name or "session" in name or "api-key" in name]

    def parents(self) -> dict[str, str]:
        """Run id to that of its parent, as the scheduler had them at its end."""
        (log,) = (self.folder / "record").iterdir()
        with log.open("rb") as lines:
            return {run.id: run.parent for run in replay(lines).state.runs.values()}


@contextlib.asynccontextmanager
async def town(folder: Path) -> AsyncGenerator[Town]:
    options = ("--state", str(folder / "state"), "--record", str(folder / "record"), "--record-clear")
    async with running("up", "--free-ports", *options, folder=folder) as stack:
        yield Town(folder, stack)


@pytest.mark.parametrize("client", ["claude", "codex"])
async def test_a_session_with_tools_of_its_own_and_of_ours_is_one_run(client: str, tmp_path: Path) -> None:
    async with town(tmp_path) as whole:
        alone = await whole.drive(client, f"Look at the files. [calls=2 {SHELL[client]}]")
        assert "from-the-shell" in alone.said
        assert len(alone.turns(client)) >= 3
        ours = await whole.drive(client, 'Have it looked up. [calls=1 tool=run args={"task":"Look up when tides are highest."}]', mcp=True)
        assert "On the task “Look up when tides are highest”" in ours.said
        runs = [{each["run-id"] for each in tried.turns(client)} for tried in (alone, ours)]
        assert [len(each) for each in runs] == [1, 1]
        assert runs[0] != runs[1]
        for tried in (alone, ours):
            assert len({each["replica"] for each in tried.turns(client)}) == 1
            assert [each for each in tried.failed() if (each["method"], each["path"]) != ("HEAD", "/")] == []
        await whole.nothing_left()


@pytest.mark.parametrize("client", ["claude", "codex"])
async def test_where_a_gateway_drops_the_clients_headers_tool_call_ids_alone_make_a_run(client: str, tmp_path: Path) -> None:
    """Two sessions with the same task. Claude Code's request for a title has no tools: nothing tells that it belongs to the session."""
    async with town(tmp_path) as whole:
        runs = [
            Counter(each["run-id"] for each in (await whole.drive(client, f"Look. [calls=3 {SHELL[client]}]", bare=True)).turns(client))
            for _ in range(2)
        ]
        await whole.nothing_left()
    for each in runs:
        assert each.most_common(1)[0][1] == 4
        assert sorted(each.values()) in ([4], [1, 4])
    assert runs[0].keys().isdisjoint(runs[1])


async def test_sub_agents_of_claude_code_are_runs_below_their_sessions(tmp_path: Path) -> None:
    """Two at once, each of which has one of its own."""
    deep = json.dumps({"description": "dig", "subagent_type": "general-purpose", "prompt": f"Dig. [calls=1 {SHELL['claude']}]"})
    upper = json.dumps({"description": "find", "subagent_type": "claude", "prompt": f"Find. [calls=1 tool=Agent args={deep}]"})
    async with town(tmp_path) as whole:
        tried = await whole.drive("claude", f"Delegate. [calls=2 parallel=2 tool=Agent args={upper}]")
        await whole.nothing_left()
    turns = tried.turns("claude")
    session = turns[0]["headers"]["x-claude-code-session-id"]
    parents = whole.parents()
    assert parents[session] == ""
    middle = [run for run, parent in parents.items() if parent == session]
    leaves = [run for run, parent in parents.items() if parent in middle]
    assert (len(middle), len(leaves)) == (2, 2)
    assert {each["run-id"] for each in turns} == {session, *middle, *leaves}


async def test_a_sub_agent_of_codex_is_a_run_below_its_session(tmp_path: Path) -> None:
    """The session's second call gives the sub-agent the time that it needs."""
    both = json.dumps({"message": f"Dig. [calls=1 {SHELL['codex']}]", "cmd": "sleep 5"})
    async with town(tmp_path) as whole:
        tried = await whole.drive("codex", f"Delegate. [calls=2 tool=spawn_agent,exec_command args={both}]")
        await whole.nothing_left()
    turns = tried.turns("codex")
    session = turns[0]["headers"]["session-id"]
    parents = whole.parents()
    assert len(parents) == 2
    (agent,) = [run for run, parent in parents.items() if parent == session]
    assert [each["run-id"] for each in turns].count(agent) == 2
    assert {each["run-id"] for each in turns} == {session, agent}
