"""Which processes make up a world, and how are they started, stopped and connected?"""

# pyright: reportPrivateUsage=false
# At the end nothing may be left in a ledger, and only the ledger itself knows what it has.

from typing import Final

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.events import Kind, ReplicaSpec
from luftpause.scheduler.core.model import TurnPhase, run_key
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.clients import Agent
from luftpause_bench.sim.dataplanes import Dataplane, Stream
from luftpause_bench.sim.engines import EngineProcess
from luftpause_bench.sim.invariants import Watcher
from luftpause_bench.sim.links import Link, Way
from luftpause_bench.sim.schedulers import Scheduler
from luftpause_bench.sim.turns import End, Exchange, Stage
from luftpause_bench.sim.world import START, World
from luftpause_fakes.engine_model import EngineParams

Made = tuple[EngineParams, tuple[str, ...]]  # what an engine can do, and the models that it says it serves

DATAPLANES: Final = ("east", "west")
KEY: Final = "HOSTED_KEY"  # west lacks it
AGE_ERROR_SECONDS: Final = 1.0  # the end of a run is told by its age, and links take their time


class Town:
    """Two dataplanes, one scheduler, two or three engines, and the agents."""

    def __init__(
        self, world: World, settings: Settings, replicas: dict[ReplicaSpec, Made], spares: dict[ReplicaSpec, Made], watcher: Watcher
    ) -> None:
        self.world = world
        self.settings = settings
        self.specs = tuple(replicas)
        self.spares = tuple(spares)  # engines that are not configured at first
        self.served = tuple(dict.fromkeys(model for _, models in replicas.values() for model in models))
        generative = (made for spec, made in replicas.items() if spec.kind is Kind.GENERATIVE)
        self.models = tuple(dict.fromkeys(model for _, models in generative for model in models))
        self.engines = {spec.name: EngineProcess(world, spec.name, *made) for spec, made in (replicas | spares).items()}
        self.agents: list[Agent] = []
        self.links: list[Link] = []
        self.ended_runs: dict[tuple[str, str], float] = {}  # (run, principal): when somebody last ended it
        self.placed_runs: dict[tuple[str, str], float] = {}  # when a turn of it last had a place
        self.calm = True  # nothing has gone wrong yet, and nobody has left
        self.died_at = 0.0  # when a dataplane last died
        self.configs = 0  # changes of the configuration
        self._over = 0  # all agents before this one are over
        self.watcher = watcher
        self.watcher.on_recount = self.compare
        self.scheduler: Scheduler | None = None
        self.places: list[Dataplane | None] = [None for _ in DATAPLANES]
        self._configured = self.specs
        self.start_scheduler()
        for number in range(len(DATAPLANES)):
            self.start_dataplane(number)

    # ---- starting and stopping

    def start_scheduler(self) -> None:
        if self.scheduler is None:
            scheduler = Scheduler(self.world, self.settings, self._configured, self.engines, self.watcher)
            scheduler.on_death = lambda: self.stop_scheduler(machine=False)
            self.scheduler = scheduler

    def stop_scheduler(self, *, machine: bool) -> None:
        """kill -9; `machine`: with the machine it runs on, so that nobody is told."""
        scheduler, self.scheduler = self.scheduler, None
        if scheduler is None:
            return
        self.world.note(scheduler.name, "killed" + " with its machine" if machine else "killed")
        self.watcher.replay(scheduler.host.state)
        scheduler.dead = True
        for link in self.links:
            if machine:
                link.go_dumb()
            else:
                link.down.break_off()
        self.links.clear()

    def start_dataplane(self, number: int) -> None:
        if self.places[number] is None:
            environ = {KEY: "k"} if number == 0 else {}
            self.places[number] = Dataplane(
                self.world, DATAPLANES[number], engines=self.engines, dial=self.dial, environ=environ, unreported=self.watcher.unreported
            )

    def stop_dataplane(self, number: int, *, machine: bool) -> None:
        dataplane, self.places[number] = self.places[number], None
        if dataplane is None:
            return
        self.world.note(dataplane.name, "killed")
        self.died_at = self.world.now
        if machine and dataplane.stream is not None:
            dataplane.stream.link.go_dumb()
        dataplane.dies()

    def configure(self, specs: tuple[ReplicaSpec, ...]) -> None:
        self.configs += 1
        self._configured = specs
        if self.scheduler is not None:
            scheduler = self.scheduler
            scheduler.do(lambda: scheduler.configure(specs))

    # ---- connecting

    def dial(self, stream: Stream) -> Link | None:
        """A dataplane opens a stream; None: nobody listens."""
        scheduler = self.scheduler
        if scheduler is None:
            return None
        dataplane = stream.dataplane
        down: Way[pb.OrderBatch] = Way(self.world, dataplane, stream.arrived, stream.end)
        session = scheduler.accept(dataplane.name, down)
        up: Way[pb.FactBatch] = Way(self.world, scheduler, lambda batch: scheduler.read(session, batch), lambda: scheduler.left(session))
        link = Link(session, up, down)
        self.links = [*self.links[-3:], link]
        return link

    # ---- agents

    def admit(self, agent: Agent) -> Agent:
        self.agents.append(agent)
        return agent

    def refused(self, agent: Agent, exchange: Exchange | None, end: End) -> None:
        """Was that sensible? Only what happened in this world may be the reason."""
        assert exchange is not None
        self.world.counts[f"refused {end.code}"] += 1
        faults = any(engine.faulty_at > 0.0 for engine in self.engines.values())
        sensible = {
            "model_not_found": self.configs > 0,
            "replica_unusable": True,  # only if none but the hosted one is left
            "engine_unreachable": faults and bool(exchange.tried),
            "no_replica": self.settings.no_replica == "refuse" and (faults or self.configs > 0),
            "held_too_long": self.settings.hold_seconds_max is not None,
            "too_many_held": self.settings.held_turns_max is not None,
            "caller_held_too_many": self.settings.held_turns_per_caller_max is not None,
            "run_ended": bool(self.ended_runs),
        }
        self.world.promise(sensible.get(end.code, False), lambda: f"{agent.name} was refused for no reason: {end}")

    # ---- comparing

    def compare(self) -> None:
        """Where a session is up on both sides, the scheduler counts every turn that an engine has of that dataplane."""
        for dataplane in self.places:
            if dataplane is None or dataplane.stream is None or not dataplane.stream.open:
                continue
            self._compare(dataplane, dataplane.stream)

    def _compare(self, dataplane: Dataplane, stream: Stream) -> None:
        scheduler, session = self.scheduler, stream.link.session
        if scheduler is None or scheduler.server.sessions.get(dataplane.name) is not session:
            return
        state = scheduler.host.state
        known = state.dataplanes.get(dataplane.name)
        if known is None or known.session != session.id or not known.connected:
            return
        for exchange in dataplane.exchanges.values():
            if exchange.stage is Stage.SENT and exchange.sent_at > self.world.jumped_at:
                turn = state.turns.get(exchange.ask.turn)
                if turn is None and exchange.unasked and (stream.tells or scheduler.lags or scheduler.host.waiting):
                    continue  # what tells of it is on its way
                counted = turn is not None and turn.phase is TurnPhase.IN_FLIGHT and turn.replica == exchange.replica
                text = f"{exchange.ask.turn} is at {exchange.replica} and not counted there"
                self.world.promise(counted, lambda text=text: text)

    def settled(self) -> bool:
        """Every agent is over, and nothing is left anywhere."""
        if self._over < len(self.agents) and not self.agents[self._over].over:
            return False  # asked after every happening: most answers must be cheap
        self._over = next((number for number, agent in enumerate(self.agents) if not agent.over), len(self.agents))
        return self._over == len(self.agents) and self.leftovers() == ""

    def leftovers(self) -> str:
        """What is still there: empty if nothing."""
        found: list[str] = []
        if self.scheduler is None:
            return "no scheduler"
        state = self.scheduler.host.state
        found += [
            f"the scheduler knows {turn.id} ({turn.phase.value}, {turn.reason}) at {turn.replica or '-'}" for turn in state.turns.values()
        ]
        found += [f"{dataplane.name} suspects {dataplane.suspects}" for dataplane in state.dataplanes.values() if dataplane.suspects]
        found += [f"{r.name}: {r.in_flight} in flight, {r.passes} passes" for r in state.replicas.values() if r.in_flight or r.passes]
        for dataplane in self.places:
            if dataplane is None or dataplane.stream is None:
                found.append("a dataplane without a session")
                continue
            ledger = dataplane.ledger
            found += [f"{dataplane.name} has {turn}" for turn in (*ledger._turns, *ledger._parked, *dataplane.memory.in_flight)]
            found += [f"{dataplane.name} remembers a run in flight: {run.id}" for run in dataplane.memory.runs.values() if run.in_flight]
            found += [f"{dataplane.name}: a waiter failed"] * ledger.counts["waiter_failed"]
        found += [f"engine {engine.name} works on {sorted(engine.hearing)}" for engine in self.engines.values() if engine.hearing]
        return "; ".join(found)

    def revived(self) -> str:
        """Which ended runs are remembered although they had no turn since: empty if none."""
        assert self.scheduler is not None
        for (run, principal), ended in self.ended_runs.items():
            went_on = max(places.get((run, principal), 0.0) for places in (self.placed_runs, self.watcher.asked_runs))
            if max(went_on, self.died_at) + AGE_ERROR_SECONDS > ended:
                continue  # it went on, or who knew of its end may have died
            if run_key(principal, run) in self.scheduler.host.state.runs:
                return f"the scheduler remembers {run}, which was ended at {ended - START:.4f}"
            for dataplane in self.places:
                if dataplane is not None and any((each.id, each.principal) == (run, principal) for each in dataplane.memory.runs.values()):
                    return f"{dataplane.name} remembers {run}, which was ended at {ended - START:.4f}"
        return ""

    def dies_once(self, events: int, seconds: float) -> None:
        """The scheduler dies after so many events; so many seconds later there is another."""
        assert self.scheduler is not None
        first = self.scheduler
        first.dies_after = events

        def dies() -> None:
            self.stop_scheduler(machine=False)
            self.world.at(seconds, self.start_scheduler)

        first.on_death = dies

    def waiting(self) -> str:
        """Which agents are not over, and why."""
        return "; ".join(
            f"{agent.name}: {agent.exchange.ask.turn} is {agent.exchange.stage.value} ({agent.exchange.reason})"
            if agent.exchange
            else agent.name
            for agent in self.agents
            if not agent.over
        )
