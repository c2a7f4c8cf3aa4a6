"""What does one of several worker processes know of the others, and how do their metrics become one page?

All listen on one port, so Prometheus meets any of them. That one asks the others, each of which listens on a loopback port of its own too,
and puts the pages together; every sample has the label `worker`.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from luftpause.dataplane.tally import P
from luftpause.kit.metrics import gauge_family

OWN: Final = "own"  # /metrics?own: the page of the worker that is asked, alone
ASK_SECONDS: Final = 2.0
PASSED_ON: Final = ("host", "authorization", "x-api-key", "accept")
_FAMILY: Final = b"# HELP "
_EOF: Final = b"# EOF\n"


class Worker(Struct, frozen=True):
    """One of `count`, numbered from 0. Each writes where it listens into a file in `folder`."""

    number: int
    count: int
    folder: Path

    def announced(self, number: int) -> Path:
        return self.folder / f"worker-{number}.json"

    def others(self) -> dict[int, str]:
        """Own addresses of those that run now."""
        found: dict[int, str] = {}
        for number in range(self.count):
            if number != self.number:
                try:
                    found[number] = str(orjson.loads(self.announced(number).read_bytes())[OWN])
                except (OSError, orjson.JSONDecodeError, KeyError):
                    continue  # it is being started
        return found


class OfWorker(Collector):
    """The same families with a label that says whose they are."""

    def __init__(self, number: int, collectors: Sequence[Collector]) -> None:
        self._number = str(number)
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            for family in collector.collect():
                family.samples = [each._replace(labels={**each.labels, "worker": self._number}) for each in family.samples]
                yield family


class Up(Collector):
    """Which workers have told their counts on this page."""

    def __init__(self, worker: Worker, answered: Iterable[int]) -> None:
        up = {worker.number, *answered}
        self._samples = [((str(number),), number in up) for number in range(worker.count)]

    def collect(self) -> Iterator[Metric]:
        yield gauge_family(P + "worker_up", "1 if this worker's counts are on this page.", ("worker",), self._samples)


async def pages_of_others(worker: Worker, headers: Mapping[str, str]) -> dict[int, bytes]:
    """The pages of those that answer in time. `headers` are those of the request, whose sender may read them all."""
    import httpx

    passed = {name: headers[name] for name in PASSED_ON if name in headers}
    others = worker.others()
    async with httpx.AsyncClient(trust_env=False, timeout=ASK_SECONDS) as client:

        async def page(url: str) -> bytes:
            answer = await client.get(f"{url}/metrics?{OWN}", headers=passed)
            return answer.raise_for_status().content

        answers = await asyncio.gather(*(asyncio.wait_for(page(url), ASK_SECONDS) for url in others.values()), return_exceptions=True)
    return {number: answer for number, answer in zip(others, answers, strict=True) if isinstance(answer, bytes)}


def merged(pages: Sequence[bytes]) -> bytes:
    """One page of several in the same format: each family once, with the samples of all."""
    families: dict[bytes, list[bytes]] = {}
    for page in pages:
        for block in page.removesuffix(_EOF).split(_FAMILY)[1:]:
            head, _, rest = block.partition(b"\n")
            kind, _, samples = rest.partition(b"\n")
            parts = families.setdefault(head.split(b" ", 1)[0], [_FAMILY + head + b"\n" + kind + b"\n"])
            parts.append(samples)
    end = _EOF if pages and pages[0].endswith(_EOF) else b""
    return b"".join(part for parts in families.values() for part in parts) + end
