"""What does the page show of a whole luftpause at work?"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.page.conftest import Open
from tests.support.processes import Process, running

pytestmark = pytest.mark.asyncio(loop_scope="package")
AGENTS = 6


async def spawned(stack: Process, agents: int) -> asyncio.subprocess.Process:
    """Sub-agents that ask the fakes and use their tools."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "loadgen", "--spawn", str(agents), "--mcp", stack.at["mcp"],
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def test_of_runs_of_a_runtime_it_shows_the_tree_what_each_does_and_what_it_cost(tmp_path: Path, opened: Open) -> None:
    async with running("up", "--free-ports", "--engine", "fake", "--state", str(tmp_path / "state"), folder=tmp_path) as stack:
        runtime = stack.at["mcp"].removesuffix("/mcp")
        address = f"{stack.at['status']}/?runtime={runtime}"
        assert address in stack.logged()
        async with opened(address) as page:
            await page.says("#link", "live")
            load = await spawned(stack, AGENTS)
            printed = (await load.communicate())[0].decode()
            assert load.returncode == 0, printed
            await page.says("#tree-note", f"{AGENTS} runs, 0 not ended")
            rows = page.page.get_by_role("table", name="Runs of the runtime as a tree").locator(".vt-space [role=row]:visible")
            assert await rows.count() == AGENTS
            cells = await rows.first.get_by_role("cell").all_inner_texts()
            assert cells[0] == "completed"
            assert int(cells[2]) >= 1  # turns
            assert int(cells[4].replace(",", "")) > 0  # tokens of prompts
            names = set(await page.page.locator("#timeline .vt-space [role=rowheader]:visible").all_inner_texts())
            assert len(names) >= AGENTS
            assert page.errors == []
            assert page.hosts == {urlsplit(stack.at["status"]).netloc, urlsplit(runtime).netloc}
