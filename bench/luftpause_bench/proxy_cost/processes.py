"""How are the proxies started on one core, watched and stopped?"""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from luftpause_bench.proc import cpu_seconds, memory_bytes
from luftpause_bench.proxy_cost.proxies import Command, Variant

READY_SECONDS = 60.0
TICK_SECONDS = 0.1
PORTS_EACH = 10  # a proxy takes its port and some above it


class BenchError(Exception):
    """The benchmark can't go on; the message says what to do."""


def compiled(folder: Path) -> tuple[Path, Path]:
    """The engine and the load generator. Raises BenchError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchError("proxy_cost needs a C compiler (cc): its engine and load generator must cost less than what they measure")
    made: list[Path] = []
    for name in ("engine", "load"):
        source, target = Path(__file__).parent / f"{name}.c", folder / name
        subprocess.run([compiler, "-O2", "-o", str(target), str(source)], check=True)
        made.append(target)
    return made[0], made[1]


def cores() -> tuple[set[int], set[int]]:
    """Where engine and load run, and where the proxy runs alone. The same ones on a machine with a single core."""
    allowed = sorted(os.sched_getaffinity(0))
    return set(allowed[:1]), set(allowed[1:2] or allowed[:1])


def pinned(words: Sequence[str], core: set[int]) -> list[str]:
    """The command on these cores from its first moment: what it starts inherits them."""
    return ["taskset", "-c", ",".join(map(str, sorted(core))), *words]


class Process:
    """A started command on its core."""

    def __init__(self, command: Command, core: set[int], log: Path) -> None:
        self.counted = command.counted
        environ = {**os.environ, **command.environ}
        with log.open("ab") as output:
            words = pinned(command.words, core)
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ)
        self.pid = self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Running:
    """A variant under its port."""

    def __init__(self, variant: Variant, folder: Path, port: int, engine: int, core: set[int]) -> None:
        self.variant = variant
        self.port = port
        self.log = folder / f"{variant.name.replace(' ', '-')}.log"
        self.processes = [Process(command, core, self.log) for command in variant.commands(folder, port, engine)]
        try:
            self._wait()
        except BenchError:
            self.stop()
            raise

    def cpu_seconds(self) -> list[float]:
        """Of each of its processes with their children, so far."""
        return [cpu_seconds(process.pid) for process in self.processes]

    def memory_bytes(self) -> int:
        return sum(memory_bytes(process.pid) for process in self.processes)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()

    def _wait(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            if any(process.ended for process in self.processes):
                break
            if _answers(f"http://127.0.0.1:{self.port}{self.variant.ready}"):
                return
            time.sleep(TICK_SECONDS)
        raise BenchError(f"{self.variant.name} did not come up; its log: {self.log}\n{self.log.read_text(errors='replace')[-2000:]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def free_ports(count: int) -> Iterator[int]:
    """Ports with PORTS_EACH free ones from each on, below those that the system gives to clients."""
    given, port = 0, 20_000 + os.getpid() % 5_000
    while given < count and port < 32_000:
        if all(_free(port + offset) for offset in range(PORTS_EACH)):
            given += 1
            yield port
        port += PORTS_EACH
    if given < count:
        raise BenchError("no free ports between 20000 and 32000")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
