"""How does a test start a real luftpause process, learn its addresses and stop it?"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

START_SECONDS = 150.0  # a loaded machine with two cores


@dataclass
class Process:
    """A started `luftpause` command; `at` is what it announced (see kit.serve.announce)."""

    command: tuple[str, ...]
    process: asyncio.subprocess.Process
    log: Path
    at: dict[str, str] = field(default_factory=dict)

    def kill(self) -> None:
        """kill -9, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    async def ended(self, seconds: float = START_SECONDS) -> int:
        return await asyncio.wait_for(self.process.wait(), seconds)

    def logged(self) -> str:
        return self.log.read_text(errors="replace")


async def start(*command: str, env: dict[str, str] | None = None, folder: Path | None = None) -> Process:
    """Start `luftpause COMMAND… --announce FILE` and wait until it announced itself; raises AssertionError with its log."""
    folder = folder or Path(tempfile.mkdtemp(prefix="luftpause-test-"))
    announced = folder / f"{command[0]}-{os.urandom(4).hex()}.json"
    log = announced.with_suffix(".log")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "luftpause", *command, "--announce", str(announced),
            stdout=out, stderr=out, env={**os.environ, **(env or {})},
        )  # fmt: skip
    started = Process(command, process, log)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not announced.exists():
                assert process.returncode is None, f"{command} ended with {process.returncode}:\n{started.logged()}"
                await asyncio.sleep(0.02)  # polling a file: nothing else tells when a foreign process is ready
    except BaseException:
        started.kill()
        await process.wait()
        raise
    started.at = json.loads(announced.read_text())
    return started


@contextlib.asynccontextmanager
async def running(*command: str, env: dict[str, str] | None = None, folder: Path | None = None) -> AsyncGenerator[Process]:
    """As `start`; ends it (SIGTERM, then kill) when the block is left."""
    process = await start(*command, env=env, folder=folder)
    try:
        yield process
    finally:
        await stop_all([process])


async def stop_all(processes: Iterable[Process]) -> None:
    """SIGTERM, one after the other; kill -9 for those that don't end. Those that have ended stay as they are."""
    for each in processes:
        if each.process.returncode is None:
            each.terminate()
            try:
                await each.ended(30)
            except TimeoutError:
                each.kill()
                await each.process.wait()


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port
    return port
