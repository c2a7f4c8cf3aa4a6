"""Are journals that an earlier version wrote still understood? None of these files is ever changed; new formats add new files."""

from pathlib import Path

from luftpause.runtime.core.advance import advance
from luftpause.runtime.core.effects import StartCall
from luftpause.runtime.core.events import ApprovalAnswered, Resumed
from luftpause.runtime.core.view import Around, view
from luftpause.runtime.journal_load import load
from luftpause.runtime.ports import BudgetKind, RunState, ServiceClass

JOURNALS = Path(__file__).parent / "journals"


def test_format_1() -> None:
    lines = (JOURNALS / "format-1.jsonl").read_bytes().splitlines()
    loaded = load((number, line) for number, line in enumerate(lines))
    assert (loaded.lost, loaded.damaged) == ({}, ())
    finished, refused, cancelled, hanging = loaded.runs.values()

    shown = view(finished, Around(seconds=0))
    assert (shown.state, shown.answer, shown.turns, shown.tool_calls, shown.failed_tool_calls) == (RunState.COMPLETED, "42 \ufffd", 4, 3, 1)
    assert (shown.prompt_tokens, shown.completion_tokens, shown.cached_tokens) == (40, 8, 16)
    assert (finished.created.owner, finished.created.caller, finished.created.tools) == ("principal", "me", ("lookup", "s*"))
    assert finished.created.service_class is ServiceClass.BATCH

    assert (refused.state, refused.text) == (RunState.FAILED, "turn 1 got no answer: context too long")
    assert (cancelled.state, cancelled.created.parent) == (RunState.CANCELLED, refused.handle)

    assert hanging.state is RunState.RUNNING
    step = advance(hanging, Resumed(0))
    assert [effect.name for effect in step.effects if isinstance(effect, StartCall)] == ["safe"]
    assert step.run.failed_tool_calls == 1


def test_approvals_and_budgets() -> None:
    lines = (JOURNALS / "format-1-approvals-and-budgets.jsonl").read_bytes().splitlines()
    loaded = load((number, line) for number, line in enumerate(lines))
    assert (loaded.lost, loaded.damaged) == ({}, ())
    decided, spent, child, counting, asking = loaded.runs.values()

    assert (decided.state, decided.text, decided.truncated, decided.failed_tool_calls) == (RunState.COMPLETED, "42", True, 1)
    assert [(each.approval, each.allowed) for each in decided.verdicts] == [("approval-2", True), ("approval-1", False)]
    assert (decided.created.task_id, decided.created.tool_call_id) == ("task-1", "toolu_1")

    assert (spent.state, spent.exceeded, spent.exceeded_used, spent.budget_seconds) == (RunState.COMPLETED, BudgetKind.TOKENS, 48, 30)
    assert (child.state, child.text) == (RunState.CANCELLED, "budget exceeded: tokens 48/40")
    assert (counting.state, counting.exceeded, counting.budget_seconds) == (RunState.COMPLETED, None, 7)

    shown = view(asking, Around(seconds=0))
    assert shown.state is RunState.AWAITING_APPROVAL
    assert [(each.id, each.tool, each.arguments) for each in shown.pending_approvals] == [("approval-1", "delete", {"q": "c"})]
    assert advance(asking, Resumed(0)).effects == (), "it was asked already"
    allowed = advance(asking, ApprovalAnswered("approval-1", allowed=True, at=0))
    assert [effect.name for effect in allowed.effects if isinstance(effect, StartCall)] == ["delete"]
