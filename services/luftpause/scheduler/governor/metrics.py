"""What does the governor tell Prometheus? Targets, scopes, classes and modes only: nothing that callers may choose."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from luftpause.kit.metrics import gauge_family
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.store.view import sharing_metrics
from luftpause.scheduler.governor.tally import CLASSES, P, QuotaTally
from luftpause.scheduler.governor.view import quotas
from luftpause.scheduler.quota.model import Light, Mode
from luftpause.scheduler.quota.view import ScopeView, TargetView

LIGHTS = tuple(each.value for each in Light)
MODES = tuple(each.value for each in Mode)


class QuotaMetrics(Collector):
    """Families of one governor, read at the moment of `collect`."""

    def __init__(self, governor: Governor, tally: QuotaTally) -> None:
        self._governor = governor
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        for counted in (tally.grants, tally.refusals, tally.blocks, tally.expiries, tally.cascades, tally.waits):
            yield counted.family()
        yield self._governor.faults.counter.family()
        if self._governor.sharing is not None:
            yield from sharing_metrics(self._governor.sharing)
        targets = quotas(self._governor).targets
        yield from _of_calls(targets)
        yield from _of_scopes([(target.name, scope) for target in targets for scope in target.traffic_light.scopes])
        yield from _of_targets(targets)


def _of_calls(targets: Iterable[TargetView]) -> Iterator[Metric]:
    waiting = [((t.name, name), count) for t in targets for name, count in zip(CLASSES, t.shared_pool.waiting, strict=True)]
    leases = [((t.name, name), count) for t in targets for name, count in zip(CLASSES, t.leases.by_class, strict=True)]
    yield gauge_family(P + "waiting", "Calls that wait for quota.", ("target", "class"), waiting)
    yield gauge_family(P + "leases", "Calls that were let out and have not been reported.", ("target", "class"), leases)


def _of_scopes(scopes: list[tuple[str, ScopeView]]) -> Iterator[Metric]:
    ratios = [((target, scope.name), scope.free / scope.capacity if scope.capacity else 0.0) for target, scope in scopes]
    lights = [((target, scope.name, light), scope.light == light) for target, scope in scopes for light in LIGHTS]
    yield gauge_family(P + "remaining_ratio", "Part of a limit that nobody has: what remains, without leases.", ("target", "scope"), ratios)
    yield gauge_family(P + "light", "1 for the traffic light that is on.", ("target", "scope", "light"), lights)


def _of_targets(targets: Iterable[TargetView]) -> Iterator[Metric]:
    modes = [((t.name, mode), t.breaker.mode == mode) for t in targets for mode in MODES]
    yield gauge_family(P + "breaker", "1 for the mode that the breaker is in.", ("target", "mode"), modes)
    levels = [((t.name,), t.breaker.level) for t in targets]
    yield gauge_family(P + "level", "How far load is cut: 0 not at all, 3 runs move to other models.", ("target",), levels)
    yield gauge_family(P + "cascade", "1 while calls go one at a time.", ("target",), [((t.name,), t.cascade.sequential) for t in targets])
