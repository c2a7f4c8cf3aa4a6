"""Which metrics can the three services show, of which type and under which labels?"""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client.registry import Collector

from luftpause.dataplane import wire
from luftpause.dataplane.answers import Answers
from luftpause.dataplane.app import FAULTS
from luftpause.dataplane.flows import Flows
from luftpause.dataplane.ledger import Ledger
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.metrics import LinkMetrics, LoopLag, PlaneMetrics
from luftpause.dataplane.workers import Up, Worker
from luftpause.kit.config import Config
from luftpause.kit.metrics import Counter
from luftpause.runtime.metrics import RuntimeMetrics
from luftpause.runtime.tally import RunTally
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.governor.app import governing
from luftpause.scheduler.governor.store.view import sharing_metrics
from luftpause.scheduler.host import Host
from luftpause.scheduler.metrics import SchedulerMetrics
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.replicas import announced, specs
from luftpause.scheduler.tally import Tally
from tests.support.agents import CountingTools

SERVICES = ("scheduler", "dataplane", "runtime")
SUFFIX = {"counter": "_total", "info": "_info", "gauge": "", "histogram": ""}
CONFIG = Config.model_validate({
    "replicas": [{"name": "a", "url": "http://127.0.0.1:1"}],
    "governor": {"targets": {"api": {"profile": "github"}}},
})


class Known(NamedTuple):
    """`labels` as they are shown, without a histogram's `le`."""

    type: str
    labels: frozenset[str]


async def catalog(folder: Path) -> dict[str, Known]:
    """By whole name, with `_total` and `_info`; within a running loop. Nothing is started; `folder` may hold a file afterwards."""
    found: dict[str, Known] = {}
    for collector in (*_scheduler(folder), *_dataplane(), _runtime()):
        for family in collector.collect():
            labels = frozenset(getattr(family, "_labelnames", ()))
            if family.type == "info":
                labels |= {name for sample in family.samples for name in sample.labels}
            found[family.name + SUFFIX[family.type]] = Known(family.type, labels)
    return found


def _scheduler(folder: Path) -> Iterable[Collector]:
    state = initial(Settings(), specs(CONFIG.replicas), 0.0)
    host = Host(decide, state, replicas=announced, clock=lambda: 0.0)
    nobody: Any = SimpleNamespace(sessions={}, unknown_facts=0)
    link = SimpleNamespace(node="n", targets={}, journal=(), outages=0, losses=0)
    sharing: Any = SimpleNamespace(link=link, mode="up", declines={})
    return (
        SchedulerMetrics(host, nobody, Tally(), lambda: 0.0, Recorder(folder)),
        governing(CONFIG).metrics,
        _Of(sharing_metrics(sharing)),
    )


def _dataplane() -> Iterable[Collector]:
    memory = Memory(seconds=1, runs_max=1)
    ledger = Ledger(memory, lambda: 0.0, words=wire, send=lambda _: None, send_soon=lambda _: None, environ={})
    return (
        LinkMetrics(ledger, lambda: 0),
        PlaneMetrics(Answers(("/",)), Flows(), LoopLag(), lambda: 0, Counter(FAULTS, "Faults.", ("work",))),
        Up(Worker(0, 1, Path()), ()),
    )


def _runtime() -> Collector:
    journal: Any = SimpleNamespace(size_bytes=0, short=False)
    return RuntimeMetrics(RunTally(lambda _: ""), CountingTools(), journal)


class _Of(Collector):
    def __init__(self, families: Iterable[Any]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Any]:
        return self._families
