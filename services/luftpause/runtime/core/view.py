"""What does a client see of a run?"""

import json

from msgspec import Struct

from luftpause.runtime.core.budgets import budget
from luftpause.runtime.core.model import Call, CallPhase, Run
from luftpause.runtime.ports import Costs, PendingApproval, RunState, RunView


class Around(Struct, frozen=True):
    """What the run's own events don't tell. `seconds`: its age; `note`: what the shell waits for; `subtree`: costs of it and all below;
    `budget_seconds`: how long its budget has counted.
    """

    seconds: float
    children: tuple[str, ...] = ()
    note: str = ""
    subtree: Costs = Costs()
    budget_seconds: float = 0.0


def view(run: Run, around: Around) -> RunView:
    completed = run.state is RunState.COMPLETED
    waiting = tuple(_pending(run, call) for call in run.waiting)
    return RunView(
        handle=run.handle,
        state=RunState.AWAITING_APPROVAL if waiting else run.state,
        task=run.created.task,
        model=run.created.model,
        service_class=run.created.service_class,
        answer=run.text if completed else None,
        error=run.text if run.state.ended and not completed else None,
        tool_calls=run.tool_calls,
        failed_tool_calls=run.failed_tool_calls,
        turns=run.turns,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cached_tokens=run.cached_tokens,
        seconds=run.seconds if run.state.ended else around.seconds,
        parent=run.created.parent,
        children=around.children,
        doing="" if run.state.ended else around.note or doing(run),
        truncated=run.truncated and run.state.ended,
        pending_approvals=waiting,
        budget=budget(run, around.subtree, around.budget_seconds),
        turn_seconds=round(run.turn_seconds, 3),
        tool_seconds=round(run.tool_seconds, 3),
        subtree=around.subtree,
        created_at=run.created.at,
        ended_at=run.ended_at,
        owner=run.created.owner,
        task_id=run.created.task_id,
    )


def _pending(run: Run, call: Call) -> PendingApproval:
    return PendingApproval(run.handle, call.approval, call.asked.name, json.loads(call.asked.arguments), call.asked_at)


def doing(run: Run) -> str:
    """For progress messages: "held or generating", "tool lookup", "tools lookup, fetch", "waits for approval of delete"."""
    if run.round is None:
        return "held or generating"
    asked = [call.asked.name for call in run.waiting]
    names = [call.asked.name for call in run.round.calls if call.phase not in {CallPhase.ENDED, CallPhase.ASKED}]
    what = [f"waits for approval of {', '.join(asked)}"] if asked else []
    if names and (not asked or run.created.parallel_tool_calls):
        what.append(f"tool{'s' if len(names) > 1 else ''} {', '.join(names)}")
    return "; ".join(what)
