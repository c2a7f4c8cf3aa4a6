"""Is endless work broken off, whatever it is, and only that?"""

import re
import threading
import time
from typing import Any

import pytest

from luftpause.runtime.core.arguments import Accepted, check
from luftpause.runtime.core.interpret import interpret
from luftpause.runtime.cpu_budget import CpuBudget
from tests.support.agents import calls, spec
from tests.unit.runtime.core.test_interpret import fresh

# Hypothesis has a callback in the garbage collector: what the timer raises there is reported and goes no further.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SECONDS = 0.05
LONG = 20.0  # processor seconds that a test may not use


def pattern(of: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": of}}}


def doubling(keyword: str) -> dict[str, Any]:
    """Each definition asks twice for the next one: a billion steps."""
    definitions: dict[str, Any] = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(30)}
    return {"$defs": {**definitions, "d30": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


ENDLESS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pattern": (pattern("^(a+)+$"), {"a": "a" * 60 + "!"}),
    "names": ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
    "allOf": (doubling("allOf"), {"a": 3}),
    "anyOf": (doubling("anyOf"), {"a": 3}),
    "wide": ({"$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}] * 100}}, "properties": {"a": {"$ref": "#/$defs/x"}}}, {"a": 3}),
    "unique": ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"a": number} for number in range(20_000)]}),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_schema_that_would_take_hours_is_not_checked_and_the_call_is_made(case: str) -> None:
    schema, arguments = ENDLESS[case]
    tools = {"t": spec("t", {"type": "object", **schema}), "u": spec("u", {"type": "object", "properties": {"n": {"type": "integer"}}})}
    began = time.process_time()
    found = interpret(fresh(), calls(("t", arguments), ("t", arguments), ("u", {"n": "x"})), tools, CpuBudget(SECONDS))
    assert time.process_time() - began < LONG
    assert [call.rejected for call in found.event.calls] == ["", "", ""], "what comes after the budget was spent is not validated either"
    assert found.notes[0] == "t was called unvalidated: its input schema takes too long to check"


def test_arguments_that_are_no_object_are_rejected_even_without_a_check() -> None:
    tools = {"t": spec("t", pattern("^(a+)+$"))}
    found = interpret(fresh(), calls(("t", {"a": "a" * 60 + "!"}), ("t", "nonsense")), tools, CpuBudget(SECONDS))
    assert found.event.calls[1].rejected.startswith("Error: invalid arguments for t: not valid JSON")


def test_usual_patterns_are_checked_within_the_budget() -> None:
    tools = {"t": spec("t", pattern("^[a-z]+(-[a-z]+)*$"))}
    right, wrong = interpret(fresh(), calls(("t", {"a": "a-slug"}), ("t", {"a": "No"})), tools, CpuBudget(SECONDS)).event.calls
    assert not right.rejected
    assert "does not match" in wrong.rejected


def test_what_is_left_goes_down_and_stays_down() -> None:
    budget = CpuBudget(LONG)
    assert budget(lambda: sum(range(1000)), 0) == 499_500
    assert 0 < budget.left <= LONG
    spent = CpuBudget(SECONDS)
    assert spent(lambda: re.match("(a+)+$", "a" * 60 + "!"), "gave up") == "gave up"
    assert spent.left == 0
    assert spent(lambda: "begun", "not begun") == "not begun"


def test_an_error_of_the_work_comes_through_and_disarms_the_timer() -> None:
    budget = CpuBudget(SECONDS)
    with pytest.raises(KeyError):
        budget(lambda: dict[str, None]()["x"], None)
    began = time.process_time()
    while time.process_time() - began < 3 * SECONDS:  # a timer that still ran would hit this
        pass


def test_work_that_swallows_the_first_ring_is_broken_off_by_a_later_one() -> None:
    class Finaliser:
        def __del__(self) -> None:
            began = time.process_time()
            while time.process_time() - began < 2 * SECONDS:  # the first ring falls into this
                pass

    def endless() -> str:
        Finaliser()
        began = time.process_time()
        while time.process_time() - began < LONG:
            pass
        return "never broken off"

    budget = CpuBudget(SECONDS)
    assert budget(endless, "broken off") == "broken off"
    assert budget.left == 0


def test_in_another_thread_there_is_no_limit_and_no_error() -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(CpuBudget(SECONDS)(lambda: "done", "")))
    thread.start()
    thread.join(60)
    assert results == ["done"]


def test_deeply_nested_arguments_are_answered_to_the_model() -> None:
    text = '{"a": ' * 900 + "1" + "}" * 900
    found = check(spec("t"), text)
    assert not isinstance(found, Accepted)
    assert "nested too deeply: more than 100 levels" in found.message
    assert isinstance(check(spec("t"), '{"a": ' * 90 + "1" + "}" * 90), Accepted)
