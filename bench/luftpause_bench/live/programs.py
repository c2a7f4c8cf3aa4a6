"""How are programs of others started, waited for and stopped?"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import httpx

from luftpause.kit.errors import LuftpauseError

TICK_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 10.0
READY_SECONDS_MAX: Final = 60.0
TAIL_BYTES: Final = 2_000


class Program:
    """A started program with a process group of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, words: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Self:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(environ or {})},
                process_group=0,
            )  # fmt: skip
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises LuftpauseError (`program_ended`) with its last words if it has ended."""
        if self._process.returncode is not None:
            raise LuftpauseError(f"{self.name} ended with {self._process.returncode}:\n{self.said()}", code="program_ended")

    def said(self) -> str:
        return self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    async def ready(self, url: str, seconds: float = READY_SECONDS_MAX) -> None:
        """Once GET `url` is answered with 200. Raises LuftpauseError."""
        await wait_until(url, seconds, what=f"{self.name} does not come up; its log ends with\n{self.said()}", check=self)

    async def ended(self) -> int:
        return await self._process.wait()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def wait_until(url: str, seconds: float, *, what: str, needs: bytes = b"", check: Program | None = None) -> None:
    """Until GET `url` gives 200 with `needs` in its body. Raises LuftpauseError (`not_ready`) that begins with `what`."""
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if check is not None:
                        check.check()
                    with contextlib.suppress(httpx.HTTPError):
                        answer = await client.get(url)
                        if answer.status_code == 200 and needs in answer.content:
                            return
                    await asyncio.sleep(TICK_SECONDS)  # nothing else tells when a foreign process is ready
        except TimeoutError:
            raise LuftpauseError(f"{what} (waited {seconds:.0f} s for {url})", code="not_ready") from None
