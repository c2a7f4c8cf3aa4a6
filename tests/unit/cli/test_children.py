"""Are child processes started, followed and stopped, and is it said when one ends by itself?"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from luftpause.cli.children import Child, ChildError, Children, supervise
from luftpause.cli.parent import VARIABLE
from luftpause.kit.serve import Stop
from tests.support.pids import gone

FAKE = ("fake-mcp", "--port", "0")
pytestmark = pytest.mark.timeout(300)


@contextlib.asynccontextmanager
async def children(folder: Path) -> AsyncGenerator[tuple[Children, list[tuple[str, str]]]]:
    lines: list[tuple[str, str]] = []
    group = Children(folder, lambda name, line: lines.append((name, line)))
    try:
        yield group, lines
    finally:
        await group.stop()


async def test_a_child_is_started_and_stopped(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        at = await group.start("tools", *FAKE)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            assert (await client.get(f"{at['http']}/health")).status_code == 200
        (child,) = group._children
        await group.stop()
        assert child.process.returncode == 0


async def test_a_service_may_start_before_its_configuration_is_there(tmp_path: Path) -> None:
    file = tmp_path / "later.yaml"
    async with children(tmp_path) as (group, _):
        child = await group.launch("scheduler", "scheduler", "--config", str(file), "--config-follows")
        ready = asyncio.create_task(group.ready(child))
        first = await group.start("tools", *FAKE)  # takes as long as the scheduler's start
        assert first
        assert not ready.done()
        part = file.with_suffix(".part")
        part.write_text("scheduler: {grpc_port: 0, http_port: 0}\n")
        part.replace(file)
        assert (await ready)["http"].startswith("http://127.0.0.1:")


async def test_children_are_stopped_in_the_reverse_order_of_their_launches(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        names = ["a", "b", "c"]
        launched = [await group.launch(name, *FAKE) for name in names]
        await asyncio.gather(*(group.ready(child) for child in launched))
        ended: list[str] = []
        watching = [asyncio.create_task(_note_end(child, ended)) for child in launched]
        await group.stop()
        await asyncio.gather(*watching)
    assert ended == ["c", "b", "a"]


async def _note_end(child: Child, ended: list[str]) -> None:
    await child.process.wait()
    ended.append(child.name)


async def test_a_child_that_can_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        with pytest.raises(ChildError, match=r"(?s)tools did not start \(exit status 2\).*lookup-seconds"):
            await supervise(group, Stop(), group.start("tools", "fake-mcp", "--lookup-seconds", "-1"))


async def test_a_child_that_dies_is_named_with_its_signal(tmp_path: Path) -> None:
    async def kill_one() -> None:
        await group.start("first", *FAKE)
        await group.start("second", *FAKE)
        group._children[1].process.kill()
        await asyncio.Event().wait()

    async with children(tmp_path) as (group, _):
        with pytest.raises(ChildError, match=r"second ended by itself \(killed by SIGKILL\)"):
            await supervise(group, Stop(), kill_one())


async def test_work_that_fails_because_a_child_died_is_told_as_the_child_s_end(tmp_path: Path) -> None:
    async def fail() -> None:
        await group.start("tools", *FAKE)
        group._children[0].process.kill()
        raise ConnectionResetError

    async with children(tmp_path) as (group, _):
        with pytest.raises(ChildError, match=r"tools ended by itself \(killed by SIGKILL\)"):
            await supervise(group, Stop(), fail())


async def test_asked_to_stop_the_work_is_given_up(tmp_path: Path) -> None:
    stop = Stop()
    stop.signal()
    async with children(tmp_path) as (group, _):
        assert await supervise(group, stop, asyncio.Event().wait()) is None


async def test_the_work_gives_its_result(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        assert await supervise(group, Stop(), asyncio.sleep(0, "done")) == "done"


async def test_a_child_that_ignores_sigterm_is_killed_at_once_when_in_a_hurry(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        await group.start("stubborn", *FAKE, grace_seconds=1000)
        (child,) = group._children
        os.kill(child.process.pid, signal.SIGSTOP)  # takes no SIGTERM until it is continued
        now = asyncio.Event()
        now.set()
        await group.stop(now)
        assert child.process.returncode == -signal.SIGKILL


async def test_a_child_that_outlives_its_grace_is_killed(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        await group.start("stubborn", *FAKE, grace_seconds=0.1)
        (child,) = group._children
        os.kill(child.process.pid, signal.SIGSTOP)
        await group.stop()
        assert child.process.returncode == -signal.SIGKILL


async def test_a_child_is_in_a_process_group_of_its_own(tmp_path: Path) -> None:
    async with children(tmp_path) as (group, _):
        await group.start("tools", *FAKE)
        (child,) = group._children
        assert os.getpgid(child.process.pid) == child.process.pid != os.getpgid(0)


async def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, pathlib, signal
from luftpause.cli.children import Children
async def main():
    group = Children(pathlib.Path({str(tmp_path)!r}), lambda *_: None)
    await group.start("tools", "fake-mcp", "--port", "0")
    print(group._children[0].process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(parent.communicate(), 60)
    await gone({int(out)})


async def test_settings_from_the_environment_do_not_reach_children_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from luftpause.cli.children import _environment

    monkeypatch.setenv("LUFTPAUSE_DATAPLANE__PORT", "1")
    monkeypatch.setenv("LUFTPAUSE_TOKEN", "t")
    environment = _environment()
    assert "LUFTPAUSE_DATAPLANE__PORT" not in environment
    assert environment["LUFTPAUSE_TOKEN"] == "t"
    assert environment[VARIABLE] == "1"


async def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    from luftpause.cli.children import LINE_BYTES_MAX, _lines

    reader = asyncio.StreamReader(limit=2**20)
    reader.feed_data(b"first\nsec\xffond\n" + b"x" * (3 * LINE_BYTES_MAX) + b"\nlast")
    reader.feed_eof()
    lines = [line async for line in _lines(reader)]
    assert lines[:2] == ["first", "sec\ufffdond"]
    assert lines[-1] == "last"
    assert "".join(lines[2:-1]) == "x" * (3 * LINE_BYTES_MAX)
    assert all(len(line) <= 2 * LINE_BYTES_MAX for line in lines)
