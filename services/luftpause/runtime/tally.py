"""How many runs are there and in which state, and how did their turns and tool calls end?

An observer of the recorder: it is told what has happened to a run once that is on disk, so that what Prometheus sees is what a restart
would find. Some 4 us per event, whatever the number of runs.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from luftpause.kit.metrics import Counter, Histogram
from luftpause.runtime.core.events import (
    Answered,
    ApprovalAnswered,
    BudgetUsed,
    CallEnded,
    Created,
    Event,
    Finished,
    Resumed,
)
from luftpause.runtime.core.model import CallPhase, Run
from luftpause.runtime.ports import BudgetKind, ModelTurn, RunState, ServiceClass, TurnError

P: Final = "luftpause_runtime_"
CLASSES: Final = tuple(each.value for each in ServiceClass)
STATES: Final = {
    RunState.RUNNING: "running",
    RunState.AWAITING_APPROVAL: "awaiting_approval",
    RunState.COMPLETED: "completed",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}
LIMITS: Final = {BudgetKind.TOKENS: "tokens", BudgetKind.TOOL_CALLS: "tool_calls", BudgetKind.SECONDS: "seconds"}
UNKNOWN: Final = ""  # the server of a tool that no server has, or that is gone

RUN_SECONDS: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
TURN_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TOOL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RunTally:
    """Counters since the start; `runs` and `pending_approvals` are of now, with what an earlier process left.

    `server_of`: the configured server that has the tool of this name, or "".
    """

    def __init__(self, server_of: Callable[[str], str]) -> None:
        self._server_of = server_of
        self.runs: Counts[tuple[str, str]] = Counts()  # by class and state
        self.pending_approvals = 0
        self.spawned = Counter(P + "spawned_runs", "Runs that were begun.", ("class",))
        self.ended = Counter(P + "ended_runs", "Runs that ended, by how.", ("class", "state"))
        self.resumed = Counter(P + "resumed_runs", "Runs that were taken up again after a restart.", ("class",))
        self.run_seconds = Histogram(
            P + "run_seconds", "From a run's spawn to its end, restarts included.", RUN_SECONDS, ("class", "state")
        )  # fmt: skip
        self.turns = Counter(
            P + "turns", "Turns that were answered: paused where the answer asks for tools, else finished.", ("class", "outcome")
        )
        self.turn_failures = Counter(
            P + "turn_failures", "Times that the dataplane gave no answer; most are tried again.", ("class", "reason")
        )  # fmt: skip
        self.turn_seconds = Histogram(
            P + "turn_seconds", "From asking for a turn to its whole answer, with tries.", TURN_SECONDS, ("class",)
        )
        self.tokens = Counter(P + "tokens", "Tokens of turns, where engines say; cached ones are part of the prompt.", ("class", "type"))
        self.tool_calls = Counter(P + "tool_calls", "Tool calls that models asked for, by how they ended.", ("server", "outcome"))
        self.tool_seconds = Histogram(P + "tool_seconds", "From a tool call's start to its result.", TOOL_SECONDS, ("server",))
        self.approvals = Counter(P + "approvals", "Questions that a person decided.", ("outcome",))
        self.budgets = Counter(P + "budgets_exceeded", "Runs whose budget was used up, by the limit that was passed.", ("limit",))
        self._start_at_zero()

    # ---- what there is

    def took(self, run: Run) -> None:
        """It is there: an earlier process left it, or what happened to it is on disk."""
        self.runs[_where(run)] += 1
        self.pending_approvals += len(run.waiting)

    def dropped(self, run: Run) -> None:
        """It is no longer kept."""
        self.runs[_where(run)] -= 1
        self.pending_approvals -= len(run.waiting)

    # ---- what happened

    def __call__(self, before: Run | None, events: Sequence[Event], after: Run) -> None:
        """These events are on disk and have made `after` of `before` (None: the run is new)."""
        if before is not None:
            self.dropped(before)
        self.took(after)
        name = after.created.service_class.value
        calls = _Calls(before)
        for event in events:
            self._event(event, name, calls)

    def failed(self, turn: ModelTurn, error: TurnError) -> None:
        self.turn_failures.add((turn.service_class.value, "limited" if error.limited else "failed"))

    def _event(self, event: Event, name: str, calls: "_Calls") -> None:
        match event:
            case Created():
                self.spawned.add((name,))
            case Answered():
                self._answered(event, name)
                self._tools(calls.asked(event), "rejected")
            case CallEnded():
                self._called(event, calls.ended(event.id))
            case ApprovalAnswered(allowed=allowed):
                self.approvals.add(("allowed" if allowed else "declined",))
                self._tools([] if allowed else [calls.declined(event.approval)], "declined")
            case Resumed():
                self.resumed.add((name,))
                self._tools(calls.interrupted(), "interrupted")
            case BudgetUsed(exceeded=limit):
                self.budgets.add((LIMITS[limit],)) if limit is not None else None
            case Finished():
                self.ended.add((name, STATES[event.state]))
                self.run_seconds.observe(event.seconds, (name, STATES[event.state]))
                self._tools(calls.names.values(), "cancelled")
            case _:
                pass

    def _answered(self, event: Answered, name: str) -> None:
        self.turns.add((name, "paused" if event.calls else "finished"))
        self.turn_seconds.observe(event.seconds, (name,))
        for kind, count in (("prompt", event.prompt_tokens), ("completion", event.completion_tokens), ("cached", event.cached_tokens)):
            self.tokens.add((name, kind), count)

    def _called(self, event: CallEnded, tool: str) -> None:
        server = self._server_of(tool)
        self.tool_calls.add((server, "failed" if event.failed else "ok"))
        self.tool_seconds.observe(event.seconds, (server,))

    def _tools(self, names: Iterable[str], outcome: str) -> None:
        for tool in names:
            self.tool_calls.add((self._server_of(tool), outcome))

    def _start_at_zero(self) -> None:
        """A rate over a series that begins with its first event misses that one."""
        for name in CLASSES:
            self.spawned.add((name,), 0)
            self.resumed.add((name,), 0)
            for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED):
                self.ended.add((name, STATES[state]), 0)
            for outcome in ("paused", "finished"):
                self.turns.add((name, outcome), 0)
            for reason in ("limited", "failed"):
                self.turn_failures.add((name, reason), 0)
            for kind in ("prompt", "completion", "cached"):
                self.tokens.add((name, kind), 0)
        for outcome in ("allowed", "declined"):
            self.approvals.add((outcome,), 0)
        for limit in LIMITS.values():
            self.budgets.add((limit,), 0)


class _Calls:
    """The tool calls of a run that have no end yet: `names` are their tools, by id."""

    def __init__(self, run: Run | None) -> None:
        calls = run.round.calls if run is not None and run.round is not None else ()
        self._round = calls
        self._room = max(0, run.created.max_tool_calls - run.tool_calls) if run is not None else 0
        self.names = {call.asked.id: call.asked.name for call in calls if call.phase is not CallPhase.ENDED}

    def asked(self, event: Answered) -> list[str]:
        """A new round; the tools of calls that are never made. Calls beyond what the run may make are none."""
        counted = event.calls[: self._room]
        self.names = {call.id: call.name for call in counted if not call.rejected}
        return [call.name for call in counted if call.rejected]

    def ended(self, id_: str) -> str:
        """Its tool."""
        return self.names.pop(id_, UNKNOWN)

    def declined(self, approval: str) -> str:
        return self.ended(next((call.asked.id for call in self._round if call.approval == approval), ""))

    def interrupted(self) -> list[str]:
        """The tools of calls that a restart left without a result and that are not made again."""
        lost = [call.asked.id for call in self._round if call.phase is CallPhase.STARTED and not call.repeatable]
        return [self.ended(id_) for id_ in lost]


def _where(run: Run) -> tuple[str, str]:
    state = RunState.AWAITING_APPROVAL if run.waiting and not run.state.ended else run.state
    return run.created.service_class.value, STATES[state]
