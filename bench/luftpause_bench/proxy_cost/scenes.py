"""Which loads are put on each proxy?"""

from msgspec import Struct


class Scene(Struct, frozen=True):
    """`chunks` 0: one JSON answer. `per`: what the CPU time is divided by."""

    name: str
    size: str
    streams: int
    chunks: int = 0
    delay_us: int = 0
    seconds: float = 1.5
    spread_ms: int = 0

    @property
    def per(self) -> str:
        return "chunk" if self.chunks and self.streams > 1 else "turn"


def turns(size: str) -> Scene:
    return Scene(f"turn {size}", size, 32)


def burst(streams: int) -> Scene:
    return Scene(f"burst {streams}", "2k", streams, chunks=64)


def paced(streams: int, delay_us: int = 20_000) -> Scene:
    """Streams that start spread over one answer's time, so that their ends don't fall together."""
    chunks = 32
    return Scene(
        f"paced {streams}", "2k", streams, chunks, delay_us, seconds=2.5, spread_ms=chunks * delay_us // 1000 if streams > 1 else 0
    )


IDLE = Scene("idle", "2k", 1, chunks=4)
SCENES = [
    *(turns(size) for size in ("2k", "32k", "256k")),
    IDLE,
    *(burst(streams) for streams in (1, 32, 256, 1_000)),
    *(paced(streams) for streams in (1, 32, 256)),
    paced(1_000, 100_000),
]
QUICK = [turns("2k"), turns("32k"), IDLE, burst(32), paced(32), paced(256)]
MEMORY = paced(1_000, 100_000)
