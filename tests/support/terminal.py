"""How does a luftpause command run on a terminal of its own, which a test can close?"""

import asyncio
import contextlib
import os
import pty
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from tests.support.processes import START_SECONDS

BECOMES_ITS_OWN: Final = """import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, and what is started there heeds it
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, sys.argv[1:])
"""


@contextlib.asynccontextmanager
async def on_a_terminal(*command: str, folder: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Callable[[], None]]]:
    """The process, once it has announced itself, and what closes its terminal; killed when the block is left."""
    ours, theirs = pty.openpty()
    announced = folder / "on-a-terminal.json"
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as terminal:
        terminal.callback(os.close, ours)
        terminal.callback(loop.remove_reader, ours)
        loop.add_reader(ours, _drained, ours)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BECOMES_ITS_OWN, sys.executable, "-m", "luftpause", *command, "--announce", str(announced),
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},  # what can't be written waits then
        )  # fmt: skip
        os.close(theirs)
        try:
            async with asyncio.timeout(START_SECONDS):
                while not announced.exists():
                    assert child.returncode is None
                    await asyncio.sleep(0.02)  # polling a file
            yield child, terminal.close
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _drained(terminal: int) -> None:
    """What is shown is read, or the process would wait for that."""
    with contextlib.suppress(OSError):
        os.read(terminal, 65_536)
