"""What does the dataplane tell Prometheus?

Everything is read from counts when it is asked for. No label grows without limit: routes, classes, reasons and outcomes are our own words,
replicas are those that are or were configured, of models only the first hundred are named. No label holds a run, a turn or a caller.
"""

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from luftpause import __version__
from luftpause.dataplane.ledger import Ledger, Line
from luftpause.dataplane.tally import CLASS_NAMES, P
from luftpause.kit import metrics, protocol
from luftpause.kit.metrics import Histogram, Labels, counter_family, gauge_family

if TYPE_CHECKING:
    from luftpause.dataplane.answers import Answers
    from luftpause.dataplane.flows import Flow, Flows

LAG_EVERY_SECONDS: Final = 0.25
LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


class LoopLag:
    """How late the loop comes to what is due, looked at four times a second; within `start` and `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.seconds = Histogram(P + "loop_lag_seconds", "How late the event loop came to a timer; four looks a second.", LAG_SECONDS)

    def start(self) -> None:
        self._due = self._loop.time() + LAG_EVERY_SECONDS
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.seconds.observe(max(0.0, self._loop.time() - self._due))
        self.start()


class LinkMetrics(Collector):
    """Turns, and the way to the scheduler. `waiting`: facts that have not left."""

    def __init__(self, ledger: Ledger[Any], waiting: Callable[[], int]) -> None:
        self._ledger = ledger
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        ledger = self._ledger
        yield from ledger.tally.families()
        held: Counter[Labels] = Counter({(name,): 0 for name in CLASS_NAMES.values()})
        in_flight: Counter[Labels] = Counter({(name, replica): 0 for name in CLASS_NAMES.values() for replica in ledger.replicas})
        for turn in ledger.turns():
            name = CLASS_NAMES[turn.ask.turn_class]
            if turn.replica:
                in_flight[name, turn.replica] += 1
            else:
                held[name,] += 1
        yield gauge_family(P + "held_turns", "Turns that wait for a place.", ("class",), held.items())
        yield gauge_family(P + "in_flight_turns", "Turns that have a place.", ("class", "replica"), in_flight.items())
        line = ledger.line
        yield gauge_family(
            P + "session",
            "1 for the state of the session with the scheduler.",
            ("state",),
            [((each.value,), each is line) for each in Line],
        )
        yield counter_family(P + "sessions", "Sessions with a scheduler that were begun.", (), [((), ledger.sessions)])
        yield gauge_family(P + "outbox_facts", "Facts that wait to be sent.", (), [((), self._waiting())])
        odd = [((kind,), count) for kind, count in sorted(ledger.counts.items())]
        yield counter_family(P + "odd_orders", "Orders that were passed over or went back, by why.", ("reason",), odd)
        yield gauge_family(
            P + "remembered_runs", "Runs that are remembered for a scheduler that restarts.", (), [((), len(ledger.memory.runs))]
        )


class PlaneMetrics(Collector):
    """Both sides of the proxy. `connections`: of clients, now. `faults`: those that ended nothing."""

    def __init__(self, answers: "Answers", flows: "Flows", lag: LoopLag, connections: Callable[[], int], faults: metrics.Counter) -> None:
        self._answers = answers
        self._flows = flows
        self._lag = lag
        self._connections = connections
        self._faults = faults

    def collect(self) -> Iterator[Metric]:
        yield counter_family(
            P + "responses", "Requests that were answered, by route and status.", ("route", "code"), self._answers.series()
        )
        yield gauge_family(P + "client_connections", "Open connections of clients.", (), [((), self._connections())])
        flows = self._flows.by_replica
        yield gauge_family(P + "upstream_connections", "Open connections to a replica.", ("replica",), _each(flows, lambda flow: flow.open))
        counts: tuple[tuple[str, str, Callable[[Flow], int]], ...] = (
            ("upstream_connects", "Connections to a replica that were made.", lambda flow: flow.made),
            ("upstream_connect_failures", "Connections to a replica that could not be made.", lambda flow: flow.failed),
            ("upstream_reuses", "Requests on a connection that was there already.", lambda flow: flow.reused),
            ("upstream_stale_retries", "Requests sent once more, as the replica had closed that connection.", lambda flow: flow.stale),
            ("upstream_sent_bytes", "Bytes of requests to a replica.", lambda flow: flow.sent_bytes),
            ("upstream_received_bytes", "Bytes of answers of a replica.", lambda flow: flow.received_bytes),
        )
        for name, help_text, pick in counts:
            yield counter_family(P + name, help_text, ("replica",), _each(flows, pick))
        yield self._lag.seconds.family()
        yield self._faults.family()
        build = {"version": __version__, "protocol": f"{protocol.MAJOR}.{protocol.MINOR}", "python": platform.python_version()}
        yield InfoMetricFamily(P + "build", "What runs here.", value=build)


def _each(flows: "dict[str, Flow]", pick: "Callable[[Flow], int]") -> list[tuple[Labels, float]]:
    return [((name,), pick(flow)) for name, flow in flows.items()]
