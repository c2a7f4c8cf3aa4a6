"""How are luftpause commands started as child processes, followed and stopped?

Each child has a process group of its own, so that Ctrl-C reaches only the parent, which stops them in order. A child ends by itself when
its parent is gone (`cli.parent`).
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import orjson

from luftpause.cli import parent
from luftpause.cli.lines import readable
from luftpause.kit import serve
from luftpause.kit.errors import LuftpauseError

START_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.02
TAIL_LINES: Final = 15
LINE_BYTES_MAX: Final = 65_536
CAUSE_SECONDS: Final = 2.0
END_OF_LOG_SECONDS: Final = 1.0  # a grandchild may keep the pipe open
GRACE_SECONDS: Final = 10.0

T = TypeVar("T")
Show = Callable[[str, str], None]  # of a child's name and one line of its log


@dataclass(eq=False)
class Child:
    """A started command. `at` is what it announced (kit.serve.announce), `tail` its newest log lines."""

    name: str
    process: asyncio.subprocess.Process
    log: asyncio.StreamReader
    grace_seconds: float
    at: dict[str, str] = field(default_factory=dict[str, str])
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=TAIL_LINES))

    def terminate(self) -> None:
        """Asks the child, which stops what it started itself."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """Ends the child and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class ChildError(LuftpauseError):
    """A child did not start, or ended although nobody asked it to; the message has its last log lines."""

    def __init__(self, child: Child, how: str) -> None:
        what = "ended by itself" if child.at else "did not start"
        rows = [row for line in child.tail for row in readable(line)[1].splitlines()]
        said = "\n".join(f"  {row}" for row in rows) or "  (it logged nothing)"
        super().__init__(f"{child.name} {what} ({how}); its last lines:\n{said}", code="child_ended")


class Children:
    """The started commands of one parent; `stop` must be awaited in the end. `environ`: variables that they get besides its own."""

    def __init__(self, folder: Path, show: Show, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ or {}
        self._folder = folder
        self._show = show
        self._children: list[Child] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Queue[Child] = asyncio.Queue()

    async def start(self, name: str, *arguments: str, grace_seconds: float = GRACE_SECONDS) -> dict[str, str]:
        """As `launch` and `ready`."""
        return await self.ready(await self.launch(name, *arguments, grace_seconds=grace_seconds))

    async def launch(self, name: str, *arguments: str, grace_seconds: float = GRACE_SECONDS) -> Child:
        """Run `luftpause ARGUMENTS… --announce FILE` and don't wait for it. Children are stopped in the reverse order of launches."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "luftpause", *arguments, "--announce", str(self._announced_at(name)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={**_environment(), **self._environ}, process_group=0,
        )  # fmt: skip
        child = Child(name, process, cast("asyncio.StreamReader", process.stdout), grace_seconds)
        self._children.append(child)
        self._tasks.add(asyncio.create_task(self._follow(child), name=f"follow {name}"))
        return child

    async def ready(self, child: Child) -> dict[str, str]:
        """What the child announced. When it ends before, `one_ended` says so. Raises ChildError when it is not ready in time."""
        child.at = await _announced(child, self._announced_at(child.name))
        return child.at

    def _announced_at(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    async def one_ended(self) -> ChildError:
        """Waits until any child ends; says which and why."""
        child = await self._ended.get()
        return ChildError(child, _status(child))

    async def stop(self, now: asyncio.Event | None = None) -> None:
        """SIGTERM to each, newest first, and wait for its end; SIGKILL to what outlives its grace, and to all once `now` is set."""
        hurry = asyncio.create_task((now or asyncio.Event()).wait())
        try:
            for child in reversed(self._children):
                await _end(child, hurry)
            await asyncio.wait(self._tasks, timeout=END_OF_LOG_SECONDS) if self._tasks else None
        finally:
            for task in (hurry, *self._tasks):
                task.cancel()
            for child in self._children:
                if child.process.returncode is None:
                    child.kill()
            self._children.clear()
            self._tasks.clear()

    async def _follow(self, child: Child) -> None:
        reading = asyncio.create_task(self._read(child))
        try:
            await child.process.wait()
            await asyncio.wait({reading}, timeout=END_OF_LOG_SECONDS)
            self._ended.put_nowait(child)
        finally:
            reading.cancel()

    async def _read(self, child: Child) -> None:
        async for line in _lines(child.log):
            child.tail.append(line)
            self._show(child.name, line)


async def supervise(children: Children, stop: serve.Stop, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None when asked to stop before it did. Raises what it raises, and ChildError when a child ends meanwhile."""
    working = asyncio.create_task(work)
    asked = asyncio.create_task(stop.asked.wait())
    ended = asyncio.create_task(children.one_ended())
    tasks = (working, asked, ended)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return None
        if working.done() and working.exception() is not None:
            await asyncio.wait({ended}, timeout=CAUSE_SECONDS)  # work that fails because a child died is told before its end is seen
        if ended.done():
            raise ended.result()
        return working.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _environment() -> dict[str, str]:
    # Settings from the environment (names with `__`) are in the configuration file that the child gets: they must not win again.
    kept = {key: value for key, value in os.environ.items() if not (key.startswith("LUFTPAUSE_") and "__" in key)}
    return {**kept, parent.VARIABLE: "1", "PYTHONUNBUFFERED": "1"}


async def _announced(child: Child, file: Path) -> dict[str, str]:
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while (at := _content(file)) is None:  # noqa: ASYNC110 - a file is the contract of kit.serve.announce
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise ChildError(child, f"not ready within {START_SECONDS_MAX:.0f} s") from None
    return at


def _content(file: Path) -> dict[str, str] | None:
    try:
        return orjson.loads(file.read_bytes())
    except FileNotFoundError:
        return None


async def _end(child: Child, hurry: asyncio.Task[bool]) -> None:
    ended = asyncio.create_task(child.process.wait())
    if child.process.returncode is None and not hurry.done():
        child.terminate()
    done, _ = await asyncio.wait({ended, hurry}, timeout=child.grace_seconds, return_when=asyncio.FIRST_COMPLETED)
    if ended not in done:
        child.kill()
    await ended


def _status(child: Child) -> str:
    status = child.process.returncode
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[str]:
    """The lines as they come; one longer than `LINE_BYTES_MAX` comes in pieces."""
    rest = b""
    while data := await reader.read(LINE_BYTES_MAX):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        if len(rest) > LINE_BYTES_MAX:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")
