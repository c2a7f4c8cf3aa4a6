"""What does the runtime tell Prometheus?

Everything is read from counts when it is asked for: a scrape costs the same however many runs are kept. No label grows without limit:
classes, states and outcomes are our own words, servers are those that are configured. No label holds a run, a caller, a model or a tool.
"""

import platform
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from luftpause import __version__
from luftpause.kit.metrics import gauge_family
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import Decision, ModelAnswer, ModelClient, ModelTurn, Toolbox, TurnError
from luftpause.runtime.tally import CLASSES, STATES, P, RunTally


class RuntimeMetrics(Collector):
    """Families of one runtime, read at the moment of `collect`."""

    def __init__(self, tally: RunTally, toolbox: Toolbox, journal: Journal) -> None:
        self._tally = tally
        self._toolbox = toolbox
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        runs = [((name, state), tally.runs[name, state]) for name in CLASSES for state in STATES.values()]
        yield gauge_family(
            P + "runs", "Runs that are kept, by their state; those that have ended until their retention is over.", ("class", "state"), runs
        )
        yield gauge_family(P + "pending_approvals", "Tool calls that wait for a person.", (), [((), tally.pending_approvals)])
        for counted in (
            tally.spawned, tally.ended, tally.resumed, tally.run_seconds, tally.turns, tally.turn_failures, tally.turn_seconds,
            tally.tokens, tally.tool_calls, tally.tool_seconds, tally.approvals, tally.budgets,
        ):  # fmt: skip
            yield counted.family()
        servers = self._toolbox.servers()
        connected = [((server.name,), server.connected) for server in servers]
        yield gauge_family(P + "tool_server_connected", "1 while the tool server is connected.", ("server",), connected)
        tools = [((server.name,), server.tools) for server in servers]
        yield gauge_family(P + "tools", "Tools of the server that can be called.", ("server",), tools)
        yield gauge_family(P + "journal_bytes", "Size of the journal.", (), [((), self._journal.size_bytes)])
        yield gauge_family(P + "journal_full", "1 while spawns are refused as the disk is full.", (), [((), self._journal.short)])
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily(P + "build", "What runs here.", value=build)


class CountingModel:
    """A `ModelClient` that tells `failed` of each turn that gave no answer."""

    def __init__(self, model: ModelClient, failed: Callable[[ModelTurn, TurnError], None]) -> None:
        self._model = model
        self._failed = failed

    async def ask(self, turn: ModelTurn) -> ModelAnswer:
        try:
            return await self._model.ask(turn)
        except TurnError as error:
            self._failed(turn, error)
            raise

    async def end_run(self, run: str) -> None:
        await self._model.end_run(run)

    async def models(self) -> tuple[str, ...]:
        return await self._model.models()

    async def classifiers(self) -> tuple[str, ...]:
        return await self._model.classifiers()

    async def decide(self, model: str, text: str, labels: Sequence[str] | None, caller: str) -> Decision:
        return await self._model.decide(model, text, labels, caller)
