"""What does one variant do under one load?"""

import subprocess
import time
import urllib.request
from pathlib import Path

import msgspec
from msgspec import Struct

from luftpause_bench.proxy_cost.processes import Running, pinned
from luftpause_bench.proxy_cost.scenes import Scene

PATH = "/v1/chat/completions"
LOAD_SECONDS_MAX = 60.0


class Heard(Struct, frozen=True):
    """What the load generator saw; times in microseconds."""

    seconds: float
    answers: int
    chunks: int
    errors: int
    incomplete: int
    disordered: int
    refused: int
    reads: int
    sums: int
    sum: str
    first_token_p50: float
    first_token_p99: float
    transit_p50: float
    transit_p99: float
    total_p50: float
    total_p99: float


class Sample(Struct, frozen=True):
    """One variant under one load once. `cpu_us`: per turn or chunk, by process. `changed`: answers differ from those without a proxy."""

    variant: str
    scene: str
    repeat: int
    heard: Heard
    cpu_us: list[float]
    memory_bytes: int
    changed: bool

    @property
    def cpu(self) -> float:
        return sum(self.cpu_us)

    @property
    def lost(self) -> int:
        heard = self.heard
        return heard.errors + heard.incomplete + heard.disordered + heard.refused


class Bench:
    """The engine, the load and the bodies; `sums` are those of untouched answers."""

    def __init__(self, load: Path, core: set[int], engine_port: int, bodies: dict[tuple[str, bool], Path]) -> None:
        self._load = load
        self._core = core
        self._engine = engine_port
        self._bodies = bodies
        self._sums: dict[tuple[int, int], str] = {}

    def direct(self, scene: Scene) -> Heard:
        """The same load without a proxy; what its answers sum up to is right."""
        self._control(scene)
        heard = self._run(self._engine, scene)
        self._sums[scene.chunks, 0] = heard.sum
        return heard

    def sample(self, running: Running, scene: Scene, repeat: int) -> Sample:
        self._control(scene)
        if (scene.chunks, 0) not in self._sums:
            self.direct(msgspec.structs.replace(scene, streams=1, seconds=0.3, spread_ms=0, delay_us=0))
            self._control(scene)
        before, started = running.cpu_seconds(), time.monotonic()
        heard = self._run(running.port, scene)
        elapsed = time.monotonic() - started
        used = [after - each for after, each in zip(running.cpu_seconds(), before, strict=True)]
        done = heard.chunks if scene.per == "chunk" else heard.answers
        # Warm-up and spread cost CPU too: take the part of the time that was measured; streams are half as many while they start.
        part = heard.seconds / (elapsed - scene.spread_ms / 2000) if elapsed else 1.0
        cpu = [seconds * min(1.0, part) / done * 1e6 if done else 0.0 for seconds in used]
        changed = heard.sums != 1 or heard.sum != self._sums[scene.chunks, 0]
        return Sample(running.variant.name, scene.name, repeat, heard, cpu, running.memory_bytes(), changed)

    def open_streams(self, running: Running, scene: Scene) -> tuple[int, int]:
        """Bytes of the proxy before, and while all streams are open."""
        self._control(scene)
        before = running.memory_bytes()
        load = self._started(running.port, scene)
        time.sleep(scene.spread_ms / 1000 + 1.0)  # all are open by then; the figure is taken in the middle of the load
        during = running.memory_bytes()
        load.communicate(timeout=LOAD_SECONDS_MAX)
        return before, during

    def _run(self, port: int, scene: Scene) -> Heard:
        output, _ = self._started(port, scene).communicate(timeout=LOAD_SECONDS_MAX)
        return msgspec.json.decode(output, type=Heard)

    def _started(self, port: int, scene: Scene) -> subprocess.Popen[bytes]:
        body = self._bodies[scene.size, scene.chunks > 0]
        figures = (port, PATH, body, scene.streams, scene.seconds, scene.chunks or 1, scene.spread_ms)
        return subprocess.Popen(pinned([str(self._load), *map(str, figures)], self._core), stdout=subprocess.PIPE)

    def _control(self, scene: Scene) -> None:
        url = f"http://127.0.0.1:{self._engine}/control?chunks={scene.chunks or 1}&delay_us={scene.delay_us}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            answer.read()
