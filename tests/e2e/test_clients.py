"""Do the real Claude Code and Codex use luftpause's sub-agents?"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.support.processes import running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
DRIVE = Path(__file__).resolve().parents[2] / "tools/clients/drive.py"


async def drive(client: str, mcp: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(DRIVE), client, "--mcp", mcp, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 200)
    if process.returncode == 3:
        missing("the client CLIs", "tools/clients/install.sh")
    return out.decode()


async def test_claude_code_and_codex_get_a_sub_agents_answer(tmp_path: Path) -> None:
    async with running("up", "--free-ports", "--state", str(tmp_path / "state"), folder=tmp_path) as stack:
        listed = await drive("claude-list", stack.at["mcp"])
        assert "luftpause" in listed
        assert "Connected" in listed
        for client in ("claude", "codex"):
            said = await drive(client, stack.at["mcp"])
            assert said.splitlines()[-1] == "rc=0", said
            assert "The sub-agent finished:" in said
            assert "Completed" in said
            assert "tides" in said
