"""Do MCP's Inspector, its conformance suite and the real Claude Code and Codex get on with the runtime's server?"""

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing
from tests.e2e.test_proxied_clients import town
from tests.support.stack import Stack, stack

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
TOOLS = Path(__file__).resolve().parents[2] / "tools"
DELETING = 'Clean up. [calls=1 tool=delete_note args={"id":"n1"}]'
LOOKING = 'Look it up. [calls=1 tool=lookup args={"query":"tides"}]'
APPROVE = {"hookSpecificOutput": {"hookEventName": "Elicitation", "action": "accept", "content": {"allow": True}}}
INSTALL = "tools/clients/install.sh"


def clients() -> Path:
    return Path(os.environ.get("LUFTPAUSE_CLIENTS") or Path.home() / ".cache/luftpause/clients")


async def said_by(*command: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    out, _ = await asyncio.wait_for(process.communicate(), 300)
    return process.returncode or 0, out.decode()


async def drive(folder: Path, client: str, mcp: str, script: list[dict[str, Any]], settings: dict[str, Any] | None = None) -> str:
    steps, options = folder / "script.json", []
    steps.write_text(json.dumps(script))
    if settings is not None:
        (folder / "settings.json").write_text(json.dumps(settings))
        options = ["--settings", str(folder / "settings.json")]
    status, said = await said_by(
        sys.executable, str(TOOLS / "clients/drive.py"), client, "--mcp", mcp, "--script", str(steps), *options
    )  # fmt: skip
    if status == 3:
        missing("the client CLIs", INSTALL)
    assert said.splitlines()[-1] == "rc=0", said
    return said


async def inspect(mcp: str, *options: str) -> dict[str, Any]:
    program = clients() / "node_modules/.bin/mcp-inspector"
    if not program.exists():
        missing("the MCP Inspector", INSTALL)
    env = {**os.environ, "PATH": f"{clients()}/node_modules/node/bin:{os.environ['PATH']}"}
    status, said = await said_by(str(program), "--cli", mcp, "--transport", "http", *options, env=env)
    assert status == 0, said
    return json.loads(said[said.index("{") :])


async def deleted(whole: Stack) -> int:
    return (await whole.tool_counts())["started"].get("delete_note", 0)


async def test_the_inspector_lists_tools_strictly_and_runs_a_sub_agent_as_a_task(tmp_path: Path) -> None:
    async with stack(tmp_path, tools=("--lookup-seconds", "0.1")) as whole:
        for era in ("legacy", "modern"):
            listed = await inspect(whole.mcp, "--protocol-era", era, "--method", "tools/list", "--strict")
            assert len(listed["tools"]) == 8
        ran = await inspect(
            whole.mcp, "--protocol-era", "modern", "--method", "tools/call", "--tool-name", "run", "--tool-arg", f"task={LOOKING}"
        )
        assert ran["structuredContent"]["state"] == "Completed"
        journal = (tmp_path / "state/runs.jsonl").read_text()
        assert len(re.findall(r'"task_id":"task_', journal)) == 1


async def test_claude_code_approves_by_a_hook_and_codex_refuses(tmp_path: Path) -> None:
    script = [{"tool": "run", "input": {"task": DELETING}}, {"text": "It said: $last"}]
    hook = {"type": "command", "command": f"echo '{json.dumps(APPROVE)}'"}
    async with stack(tmp_path) as whole:
        said = await drive(tmp_path, "claude", whole.mcp, script, {"hooks": {"Elicitation": [{"hooks": [hook]}]}})
        assert "Completed" in said
        assert await deleted(whole) == 1
        said = await drive(tmp_path, "codex", whole.mcp, script)
        assert "Completed" in said
        assert re.search(r"failedToolCalls\D{1,6}1\b", said), said
        assert await deleted(whole) == 1


async def test_six_sub_agents_of_claude_code_take_less_than_half_of_the_time_of_one_after_another(tmp_path: Path) -> None:
    spawn = {"tool": "spawn", "input": {"task": LOOKING}}
    wait = {"tool": "await", "input": {"handles": ["$handle"], "timeout": 60}}
    together = [*[spawn] * 6, {"tool": "await", "input": {"handles": "$handles", "timeout": 60}}, {"text": "$last"}]
    apart = [*[spawn, wait] * 6, {"text": "$last"}]
    async with stack(tmp_path, tools=("--lookup-seconds", "2")) as whole:
        seconds: list[float] = []
        for script in (together, apart):
            said = await drive(tmp_path, "claude", whole.mcp, script)
            seconds.append(float(re.findall(r"script_seconds=([\d.]+)", said)[0]))
            if script is together:
                assert re.search(r"done\W+6\W+total\W+6\b", said), said
        assert (await whole.tool_counts())["finished"]["lookup"] == 12
    failed = re.findall(r'"failed":true', (tmp_path / "state/runs.jsonl").read_text())
    print(f"together {seconds[0]:.1f} s, one after another {seconds[1]:.1f} s, ratio {seconds[0] / seconds[1]:.2f}, failed {len(failed)}")
    assert failed == []
    assert seconds[0] <= 0.45 * seconds[1], seconds


@pytest.mark.parametrize("client", ["claude", "codex"])
async def test_a_spawn_through_the_proxy_is_a_run_below_its_session(client: str, tmp_path: Path) -> None:
    spawn = json.dumps({"task": DELETING})
    async with town(tmp_path) as whole:
        tried = await whole.drive(client, f"Delegate. [calls=1 tool=spawn args={spawn}]", mcp=True)
        await whole.nothing_left()
        began = time.monotonic()
        journal = tmp_path / "state/runs.jsonl"
        while "approval_asked" not in journal.read_text() and time.monotonic() - began < 20:
            await asyncio.sleep(0.05)  # another process's file
    (session,) = {each["run-id"] for each in tried.turns(client)}
    parents = whole.parents()
    children = [run for run, parent in parents.items() if parent == session]
    assert len(children) == 1, parents
    assert children[0] in journal.read_text()


async def test_every_check_of_the_conformance_suite_passes(tmp_path: Path) -> None:
    status, said = await said_by(sys.executable, str(TOOLS / "conformance/run.py"), "--clients", str(clients()))
    if status == 3:
        missing("MCP's conformance suite", INSTALL)
    assert status == 0, said
    for name, checks in (("2025-11-25", 84), ("2026-07-28", 196), ("all", 234)):
        assert f"fixture, {name}: {checks}/{checks} checks" in said
