"""What does a client see of runs and tools: JSON, and text beside it?"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

from msgspec.structs import replace

from luftpause.runtime.ports import Amounts, Budget, Decided, Decision, Json, PendingApproval, RunState, RunView, ServerState, ToolSpec

TASK_CHARS: Final = 200
DOING_CHARS: Final = 120
DOINGS_MAX: Final = 5
LISTED_MAX: Final = 500
ARGUMENTS_CHARS: Final = 500


def run_json(run: RunView) -> Json:
    """As `schemas` describes it; what is not known is left out."""
    waiting = run.pending_approvals
    optional: Json = {
        "answer": run.answer,
        "truncated": run.truncated or None,
        "error": run.error,
        "doing": run.doing or None,
        "pendingApproval": _approval_json(waiting[0]) if waiting else None,
        "otherPendingApprovals": [_approval_json(each) for each in waiting[1:]] or None,
        "parent": run.parent,
        "budget": _budget_json(run.budget) if run.budget is not None else None,
    }
    return {
        "handle": run.handle,
        "state": run.state.value,
        "task": cut(run.task, TASK_CHARS),
        "model": run.model,
        "serviceClass": run.service_class.value,
        **{key: value for key, value in optional.items() if value is not None},
        "toolCalls": run.tool_calls,
        "failedToolCalls": run.failed_tool_calls,
        "turns": run.turns,
        "promptTokens": run.prompt_tokens,
        "completionTokens": run.completion_tokens,
        "cachedTokens": run.cached_tokens,
        "seconds": round(run.seconds, 3),
        "children": list(run.children),
    }


def runs_json(runs: Sequence[RunView]) -> Json:
    return {"runs": [run_json(run) for run in runs], "done": sum(run.state.ended for run in runs), "total": len(runs)}


def listed_json(runs: Sequence[RunView]) -> Json:
    """The newest LISTED_MAX without their answers, which `await` gives; `done` and `total` count all."""
    listed = [replace(run, answer=None, error=cut(run.error, TASK_CHARS) if run.error else None) for run in runs[-LISTED_MAX:]]
    return {**runs_json(listed), "done": sum(run.state.ended for run in runs), "total": len(runs)}


def _approval_json(approval: PendingApproval) -> Json:
    return {"approvalId": approval.id, "tool": approval.tool, "arguments": approval.arguments}


def _budget_json(budget: Budget) -> Json:
    exceeded = {"exceeded": budget.exceeded.value} if budget.exceeded is not None else {}
    return {"limits": _amounts_json(budget.limits), "used": _amounts_json(budget.used), **exceeded}


def _amounts_json(amounts: Amounts) -> Json:
    seconds = None if amounts.seconds is None else round(amounts.seconds, 3)
    found: Json = {"tokens": amounts.tokens, "toolCalls": amounts.tool_calls, "seconds": seconds}
    return {key: value for key, value in found.items() if value is not None}


def decided_json(decided: Decided) -> Json:
    return {
        "approvalId": decided.id,
        "tool": decided.tool,
        "allowed": decided.allowed,
        "first": decided.first,
        "run": run_json(decided.run),
    }


def decided_text(decided: Decided) -> str:
    what = "allowed" if decided.allowed else "declined"
    if decided.first:
        return f"{decided.run.handle}: the call of {decided.tool} is {what}. Call await with this handle to get its answer."
    return f"{decided.run.handle}: the call of {decided.tool} was {what} before; that decision stands."


def decision_json(decision: Decision) -> Json:
    return {
        "label": decision.label,
        "probabilities": decision.probabilities,
        "unscored": list(decision.unscored),
        "model": decision.model,
    }


def decision_text(decision: Decision) -> str:
    likely = sorted(decision.probabilities.items(), key=lambda item: -item[1])
    figures = ", ".join(f"{label} {probability:.3f}" for label, probability in likely)
    unscored = f"; not considered: {', '.join(decision.unscored)}" if decision.unscored else ""
    return f"{decision.label} ({figures}{unscored})"


def approval_text(approval: PendingApproval, chars_max: int = ARGUMENTS_CHARS) -> str:
    """`the call of remove with {"path": "a"}`, cut where the arguments are long."""
    return f"the call of {approval.tool} with {cut(json.dumps(approval.arguments, ensure_ascii=False), chars_max)}"


def run_text(run: RunView) -> str:
    """A line about the run, then its answer or error."""
    line = f"{run.handle}: {run.state.value}{_figures(run)}"
    match run.state:
        case RunState.COMPLETED:
            return f"{line}{' (cut at maxTokens)' if run.truncated else ''}\n{run.answer or '(an empty answer)'}"
        case RunState.FAILED | RunState.CANCELLED:
            return f"{line}\n{run.error}" if run.error else line
        case RunState.AWAITING_APPROVAL:
            waits = [f"waits for a person's consent ({each.id}): {approval_text(each)}" for each in run.pending_approvals]
            return "\n".join([line, *waits, "After asking the user, answer with the tool approve(handle, allow)."])
        case RunState.RUNNING:
            return f"{line}; {run.doing}" if run.doing else line
    assert_never(run.state)


def spawned_text(run: RunView) -> str:
    return f"{run.handle} runs with {run.model}. Call await with this handle to get its answer."


def awaited_text(runs: Sequence[RunView]) -> str:
    done = sum(run.state.ended for run in runs)
    left = [run.handle for run in runs if run.state is RunState.RUNNING]
    hint = [f"Still running; call await again with: {', '.join(left)}"] if left else []
    return "\n\n".join([f"{done} of {len(runs)} done.", *map(run_text, runs), *hint])


def listed_text(runs: Sequence[RunView]) -> str:
    if not runs:
        return "No runs."
    lines = [f"{run.handle}: {run.state.value}{_figures(run)}: {cut(run.task, TASK_CHARS)}" for run in runs[-LISTED_MAX:]]
    left_out = f" The newest {LISTED_MAX} are listed." if len(runs) > LISTED_MAX else ""
    return "\n".join([f"{_count(len(runs), 'run')}.{left_out} For an answer call await with its handle.", *lines])


def tools_json(tools: Mapping[str, ToolSpec], servers: Iterable[ServerState]) -> Json:
    return {
        "tools": [
            {
                "name": tool.name,
                "server": tool.server,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "readOnly": tool.read_only,
                "destructive": tool.destructive,
                "needsApproval": tool.needs_approval,
            }
            for tool in tools.values()
        ],
        "servers": [
            {
                "name": server.name,
                "connected": server.connected,
                "tools": server.tools,
                **({"error": server.error} if server.error else {}),
                **({"notes": list(server.notes)} if server.notes else {}),
            }
            for server in servers
        ],
    }


def tools_text(tools: Mapping[str, ToolSpec], servers: Sequence[ServerState]) -> str:
    lines = [
        f"- {tool.name} ({tool.server}{_consent(tool)}): {cut(tool.description, TASK_CHARS) or 'no description'}" for tool in tools.values()
    ]
    away = [f"{server.name} is not connected, its tools are missing: {server.error}" for server in servers if not server.connected]
    head = f"{len(lines)} tool{'' if len(lines) == 1 else 's'} for sub-agents."
    none = [] if servers else ["No tool servers are configured (runtime.servers)."]
    return "\n".join([head, *lines, *away, *none])


def _consent(tool: ToolSpec) -> str:
    return ", needs consent" if tool.needs_approval else ""


def progress_text(runs: Sequence[RunView]) -> str:
    """`7 of 16 done: 6 held or generating, 3 tool lookup`; of one run just what it does."""
    done = sum(run.state.ended for run in runs)
    doing: dict[str, int] = {}
    for run in runs:
        if not run.state.ended:
            what = cut(run.doing or run.state.value, DOING_CHARS)
            doing[what] = doing.get(what, 0) + 1
    most = sorted(doing.items(), key=lambda item: -item[1])[:DOINGS_MAX]
    rest = ", ".join(what if len(runs) == 1 else f"{count} {what}" for what, count in most)
    return f"{done} of {len(runs)} done" + (f": {rest}" if rest else "")


def _figures(run: RunView) -> str:
    failed = f" ({run.failed_tool_calls} failed)" if run.failed_tool_calls else ""
    return f", {_count(run.turns, 'turn')}, {_count(run.tool_calls, 'tool call')}{failed}, {run.seconds:.1f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + "…"
