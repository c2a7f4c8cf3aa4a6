"""What does the scheduler tell Prometheus?

Everything is read from counts and small tables when it is asked for: a scrape costs the same however many runs and turns there are.
No label grows without limit: classes, reasons, outcomes and codes are the core's own, replicas are those that are or were configured.
"""

import platform
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, get_args

from prometheus_client.core import InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from luftpause import __version__
from luftpause.kit import protocol
from luftpause.kit.clock import Clock
from luftpause.kit.metrics import Labels, counter_family, gauge_family
from luftpause.scheduler.core.decisions import Decision, HoldReason
from luftpause.scheduler.core.events import Event
from luftpause.scheduler.core.model import PHASES, Health, Replica, State
from luftpause.scheduler.core.runs import phase_slot
from luftpause.scheduler.core.view import cap_of
from luftpause.scheduler.core.view_held import CLASSES, held_for, oldest_by_class
from luftpause.scheduler.host import Host
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.server import SessionServer
from luftpause.scheduler.tally import Tally

P: Final = "luftpause_scheduler_"
EVENTS: Final = tuple(event.__name__ for event in get_args(Event))
DECISIONS: Final = tuple(decision.__name__ for decision in get_args(Decision))

Samples = Iterable[tuple[Labels, float]]


class SchedulerMetrics(Collector):
    """Families of one scheduler, read at the moment of `collect`."""

    def __init__(self, host: Host, sessions: SessionServer, tally: Tally, clock: Clock, recorder: Recorder | None = None) -> None:
        self._host = host
        self._recorder = recorder
        self._sessions = sessions
        self._tally = tally
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        state, now = self._host.state, self._clock()
        yield from self._counted(state)
        yield from self._turns(state, now)
        yield from _of_replicas(state, now)
        yield from self._service(state, now)

    def _counted(self, state: State) -> Iterator[Metric]:
        """Since the start."""
        tally = self._tally
        for counted in (tally.turns, tally.placements, tally.adopted, tally.returns, tally.tokens, tally.held_seconds):
            yield counted.family()
        yield counter_family(
            P + "holds",
            "Turns that were held, by reason; one whose reason changes counts for each.",
            ("reason",),
            [((reason.value,), state.counters.get(f"held/{reason.value}", 0)) for reason in HoldReason],
        )
        yield counter_family(
            P + "refusals", "Turns that were answered with an error by rule, by its code.", ("code",), _under(state, "refused")
        )
        if self._recorder is not None:
            yield counter_family(P + "unrecorded_events", "Events that are in no log.", (), [((), self._recorder.lost)])
        yield counter_family(P + "run_moves", "Lanes of runs that went on at another replica.", (), [((), state.counters.get("moved", 0))])

    def _turns(self, state: State, now: float) -> Iterator[Metric]:
        """As they are now."""
        shares = self._tally.shares
        yield gauge_family(
            P + "in_flight_turns",
            "Generative turns at a replica.",
            ("class", "replica"),
            [
                ((name, replica), shares.in_flight[number].get(replica, 0))
                for number, name in enumerate(CLASSES)
                for replica in dict.fromkeys((*state.names, *shares.in_flight[number]))
            ],
        )
        yield gauge_family(
            P + "held_turns",
            "Turns that wait for a place, by the reason.",
            ("class", "reason"),
            [((name, why.value), shares.held[number].get(why.value, 0)) for number, name in enumerate(CLASSES) for why in HoldReason],
        )
        homes = held_for(state)
        yield gauge_family(
            P + "held_home_turns",
            "Turns that wait for this replica and may go nowhere else, as their prefix is there.",
            ("class", "replica"),
            [
                ((name, replica), homes[replica][number] if replica in homes else 0)
                for number, name in enumerate(CLASSES)
                for replica in dict.fromkeys((*state.names, *homes))
            ],
        )
        first = oldest_by_class(state)
        yield gauge_family(
            P + "held_oldest_seconds",
            "For how long the oldest held turn has waited; 0 if none is held.",
            ("class",),
            [((name,), max(0.0, now - first.get(number, now))) for number, name in enumerate(CLASSES)],
        )
        yield gauge_family(
            P + "runs",
            "Runs that are known, by what they do.",
            ("phase", "class"),
            [((phase, name), state.phases[phase_slot(phase, number)]) for phase in PHASES for number, name in enumerate(CLASSES)],
        )
        yield gauge_family(P + "callers", "Callers with a turn held or in flight.", (), [((), len(shares.callers))])

    def _service(self, state: State, now: float) -> Iterator[Metric]:
        """The process itself and whom it talks to."""
        host, sessions = self._host, self._sessions.sessions.values()
        complete = sum(session.complete for session in sessions)
        yield gauge_family(
            P + "sessions",
            "Dataplanes that are connected, by whether their Hello is complete.",
            ("state",),
            [(("resynced",), complete), (("opening",), len(sessions) - complete)],
        )
        yield gauge_family(
            P + "outbox_orders",
            "Orders that wait to be sent to a connected dataplane.",
            ("dataplane",),
            [((session.dataplane,), len(session.outbox)) for session in sessions],
        )
        yield gauge_family(P + "inbox_events", "Events that wait for a decision.", (), [((), host.waiting)])
        yield host.decide_seconds.family()
        yield counter_family(P + "events", "Events that were decided on, by type.", ("type",), _by_type(EVENTS, host.events))
        yield counter_family(P + "decisions", "What was decided, by type.", ("type",), _by_type(DECISIONS, host.decisions))
        yield counter_family(P + "undeliverable_orders", "Orders for a dataplane that had no session.", (), [((), host.undeliverable)])
        unknown = self._sessions.unknown_facts + sum(session.unknown_facts for session in sessions)
        yield counter_family(P + "unknown_facts", "Facts of a newer protocol that were passed over.", (), [((), unknown)])
        yield gauge_family(P + "placing", "1 once placing has begun after the start.", (), [((), state.open)])
        yield gauge_family(P + "uptime_seconds", "Since the start.", (), [((), now - state.started_at)])
        build = {"version": __version__, "protocol": f"{protocol.MAJOR}.{protocol.MINOR}", "python": platform.python_version()}
        yield InfoMetricFamily(P + "build", "What runs here.", value=build)


def _of_replicas(state: State, now: float) -> Iterator[Metric]:
    """Those that are configured."""
    replicas = [state.replicas[name] for name in state.names]
    yield gauge_family(
        P + "replica_health",
        "1 for the health that the replica has.",
        ("replica", "state"),
        [((replica.name, health.value), replica.health is health) for replica in replicas for health in Health],
    )
    loads = [(replica, replica.load) for replica in replicas if replica.load is not None]
    reports: tuple[tuple[str, str, Samples], ...] = (
        ("probe_misses", "Probes in a row that went wrong.", _each(replicas, "misses")),
        ("passes_in_flight", "Embedding and classifier turns at the replica.", _each(replicas, "passes")),
        ("reserved_places", "Places kept for paused interactive runs.", _each(replicas, "reserved")),
        ("burst_turns", "So many turns more are in flight than at the last report of its load.", _bursts(replicas)),
        ("cap_turns", "Most turns that it may have in flight; +Inf: not capped.", [((each.name,), _cap(state, each)) for each in replicas]),
        ("running_requests", "Requests that the engine runs, as it reported.", [((each.name,), load.running) for each, load in loads]),
        ("waiting_requests", "Requests that wait in the engine, as it reported.", [((each.name,), load.waiting) for each, load in loads]),
        (
            "load_age_seconds",
            "Age of that report.",
            [((each.name,), now - each.load_at) for each, _ in loads],
        ),
    )
    for name, help_text, samples in reports:
        yield gauge_family(f"{P}replica_{name}", help_text, ("replica",), samples)


def _each(replicas: list[Replica], field: str) -> Samples:
    return [((replica.name,), getattr(replica, field)) for replica in replicas]


def _bursts(replicas: list[Replica]) -> Samples:
    return [((replica.name,), max(0, replica.in_flight - replica.seen)) for replica in replicas]


def _cap(state: State, replica: Replica) -> float:
    cap = cap_of(state, replica)
    return inf if cap is None else cap


def _under(state: State, family: str) -> Samples:
    """The core's counters of this family, by what they count."""
    prefix = family + "/"
    return [((name.removeprefix(prefix),), state.counters[name]) for name in sorted(state.counters) if name.startswith(prefix)]


def _by_type(names: tuple[str, ...], counts: dict[str, int]) -> Samples:
    return [((name,), counts.get(name, 0)) for name in names]
