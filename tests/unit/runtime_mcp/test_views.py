"""Does what a client sees of a run fit its schema, with everything that a run can have?"""

import jsonschema
import mcp_types as types
import pytest

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools import outputs, views
from luftpause.runtime.mcp_tools.asking import FORM, answer_of, question
from luftpause.runtime.mcp_tools.schemas import TOOL_NAMES_MAX, definitions
from luftpause.runtime.ports import Amounts, Budget, BudgetKind, Decided, Decision, PendingApproval, RunState, RunView, ServiceClass

ASKED = tuple(PendingApproval("run_1", f"approval-{number}", "remove", {"path": number}, 0.0) for number in (1, 2))
FULL = RunView(
    "run_1", RunState.AWAITING_APPROVAL, "t", "m", ServiceClass.BATCH, error="e", parent="run_0", children=("run_2",), truncated=True,
    pending_approvals=ASKED, budget=Budget(Amounts(tokens=5, seconds=1.5), Amounts(7, 2, 0.12345), BudgetKind.TOKENS),
)  # fmt: skip


def test_a_run_with_everything_fits_its_schema_and_says_what_it_waits_for():
    shown = views.run_json(FULL)
    jsonschema.validate(shown, outputs.RUN)
    assert shown["pendingApproval"] == {"approvalId": "approval-1", "tool": "remove", "arguments": {"path": 1}}
    assert [each["approvalId"] for each in shown["otherPendingApprovals"]] == ["approval-2"]
    assert shown["budget"] == {
        "limits": {"tokens": 5, "seconds": 1.5},
        "used": {"tokens": 7, "toolCalls": 2, "seconds": 0.123},
        "exceeded": "tokens",
    }
    assert "(approval-2): the call of remove with" in views.run_text(FULL)
    jsonschema.validate(views.runs_json([FULL]), outputs.RUNS)


def test_decisions_fit_their_schemas():
    decided = Decided("approval-1", "remove", allowed=False, first=True, run=FULL)
    jsonschema.validate(views.decided_json(decided), outputs.DECIDED)
    assert "is declined" in views.decided_text(decided)
    decision = Decision("good", {"good": 0.7, "bad": 0.3}, ("odd",), "m")
    jsonschema.validate(views.decision_json(decision), outputs.DECISION)
    assert views.decision_text(decision) == "good (good 0.700, bad 0.300; not considered: odd)"


def test_every_tool_has_valid_schemas_and_long_lists_of_tools_are_cut():
    tools = definitions(RuntimeConfig(), [f"tool_{number:03d}" for number in range(TOOL_NAMES_MAX + 7)])
    for tool in tools:
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)  # type: ignore[arg-type]
    assert tools[0].input_schema["properties"]["tools"]["description"].endswith(f"tool_{TOOL_NAMES_MAX - 1:03d} and 7 more.")


def test_a_question_shows_the_arguments_and_cuts_what_nobody_reads():
    long = PendingApproval("run_1", "approval-1", "write", {"text": "x" * 10_000}, 0.0)
    assert len(question(long)) < 4200
    assert question(long).endswith("….")
    jsonschema.validate({"allow": True}, FORM)


@pytest.mark.parametrize(
    ("response", "decides"),
    [
        ({"action": "accept", "content": {"allow": True}}, True),
        ({"action": "accept", "content": {"allow": False}}, False),
        ({"action": "decline"}, False),
        ({"action": "decline", "content": {"allow": True}}, False),
        ({"action": "cancel"}, None),
        ({"action": "cancel", "content": {"allow": True}}, None),
        ({"action": "accept"}, None),
        ({"action": "accept", "content": {"allow": "true"}}, None),
        ({"action": "accept", "content": {"allow": 1}}, None),
        ({"action": "accept", "content": {"allowed": True}}, None),
        ({"action": "yes"}, None),
        ({}, None),
        ("accept", None),
        (None, None),
        (types.ListRootsResult(roots=[]), None),
    ],
)
def test_only_a_yes_is_a_yes(response: object, decides: bool | None):
    assert answer_of(response) is decides
