"""Do a model's answers become calls that can be made and a history that engines take?"""

import json
from typing import Any

import pytest

from luftpause.runtime.core.advance import advance, fold
from luftpause.runtime.core.events import CallEnded, CallStarted, Created
from luftpause.runtime.core.interpret import RECOVERIES_MAX, interpret
from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import ModelAnswer, ModelCall, ServiceClass
from tests.support.agents import calls, spec, text

TOOLS = {each.name: each for each in (spec("get_weather"), spec("add"), spec("lookup"))}


def fresh(max_tool_calls: int = 8) -> Run:
    event = Created("run_1", 1.0, "t", "m", ServiceClass.BATCH, "", max_tool_calls, 0, parallel_tool_calls=True)
    return fold([event]).run


def after(run: Run, answer: ModelAnswer) -> Run:
    """`run` when all calls of this answer have ended."""
    event = interpret(run, answer, TOOLS).event
    run = advance(run, event).run
    for call in event.calls:
        if not call.rejected:
            run = advance(run, CallStarted(call.id)).run
    for call in event.calls:
        if not call.rejected:
            run = advance(run, CallEnded(call.id, "ok")).run
    return run


def test_an_unknown_tool_is_answered_with_the_names_nearest_first() -> None:
    (call,) = interpret(fresh(), calls(("get_wether", "{}")), TOOLS).event.calls
    assert call.rejected == "Error: unknown tool 'get_wether'. The tools are: get_weather, add, lookup"
    assert call.name == "get_wether"


def test_a_tool_whose_server_is_away_is_not_unknown() -> None:
    away = {"wiki": spec("wiki")}
    gone, nobody = interpret(fresh(), calls(("wiki", "{}"), ("wikis", "{}")), TOOLS, away=away).event.calls
    assert gone.rejected == (
        f"Error: wiki can't be called now: the tool server {away['wiki'].server} is not connected. Try it again later, or do without it."
    )
    assert nobody.rejected.startswith("Error: unknown tool 'wikis'.")


@pytest.mark.parametrize("name", ["Get_Weather", "GET_WEATHER"])
def test_another_case_is_another_name_but_the_nearest(name: str) -> None:
    (call,) = interpret(fresh(), calls((name, "{}")), TOOLS).event.calls
    assert "The tools are: get_weather," in call.rejected


def test_a_wrong_call_does_not_spoil_its_sibling() -> None:
    wrong, right = interpret(fresh(), calls(("nobody", "{}"), ("add", "{}")), TOOLS).event.calls
    assert wrong.rejected
    assert not right.rejected


def test_without_tools_an_unknown_name_is_told_that_there_are_none() -> None:
    (call,) = interpret(fresh(), calls(("add", "{}")), {}).event.calls
    assert "There are no tools" in call.rejected


def test_when_the_budget_is_spent_calls_are_not_looked_for() -> None:
    event = interpret(fresh(0), calls(("add", "{}"), content="so be it"), {}).event
    assert (event.content, event.calls) == ("so be it", ())
    event = interpret(fresh(0), text('{"name": "add", "arguments": {}}'), {}).event
    assert event.calls == ()


@pytest.mark.parametrize(
    ("ids", "kept"),
    [(["a", "b"], [True, True]), (["a", "a"], [True, False]), (["a", ""], [True, False]), (["", ""], [False, False])],
)
def test_ids_are_unique_in_the_history(ids: list[str], kept: list[bool]) -> None:
    made = interpret(fresh(), calls(("add", "{}"), ("add", "{}"), ids=ids), TOOLS).event.calls
    assert [call.id == given for call, given in zip(made, ids, strict=True)] == kept
    assert len({call.id for call in made}) == 2
    assert all(call.id for call in made)


def test_an_id_that_the_engine_uses_again_in_the_next_turn_is_replaced() -> None:
    run = after(fresh(), calls(("add", "{}")))
    (again,) = interpret(run, calls(("add", "{}")), TOOLS).event.calls
    assert again.id != "call_0"
    assert interpret(run, calls(("add", "{}")), TOOLS).event.calls == (again,), "minted ids are stable"


@pytest.mark.parametrize("arguments", [{"q": 1}, None, "", "null", "[]", '{"q": "x",}', '"{}"', "{{{", "5", '{"q": 1e999}', "[1]"])
def test_arguments_in_the_history_are_the_json_text_of_an_object(arguments: Any) -> None:
    for name in ("add", "nobody"):
        (call,) = interpret(fresh(), calls((name, arguments)), TOOLS).event.calls
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("name", ["a.b/c", "", "x" * 100, "näme", "<|end|>"])
def test_names_in_the_history_are_names_that_engines_take(name: str) -> None:
    (call,) = interpret(fresh(), calls((name, "{}")), TOOLS).event.calls
    assert call.name
    assert len(call.name) <= 64
    assert call.name.isascii()
    assert call.name.replace("_", "").replace("-", "").isalnum() or set(call.name) <= {"_"}


def test_lone_surrogates_become_one_replacement_character_each() -> None:
    answer = ModelAnswer("a\ud83eb", (ModelCall("\ud83e", "add", '{"q": "\\ud83d\\ude00\\ud83e"}'),), "tool_calls")
    event = interpret(fresh(), answer, TOOLS).event
    assert event.content == "a\ufffdb"
    assert json.loads(event.calls[0].arguments) == {"q": "😀\ufffd"}
    assert event.calls[0].id == "\ufffd"


def test_a_call_cut_off_by_the_length_limit_is_told_so() -> None:
    answer = ModelAnswer("", (ModelCall("a", "add", '{"q": "never en'),), "length")
    assert "cut off at its length limit" in interpret(fresh(), answer, TOOLS).event.calls[0].rejected


def test_at_most_two_recoveries_in_a_row() -> None:
    run, written = fresh(), text('{"name": "add", "arguments": {}}')
    for _ in range(RECOVERIES_MAX):
        assert interpret(run, written, TOOLS).event.recovered
        run = after(run, written)
    event = interpret(run, written, TOOLS).event
    assert event.calls == ()
    assert event.content == written.content
    run = after(run, calls(("add", "{}"), ids=["x"]))
    assert interpret(run, written, TOOLS).event.recovered, "a proper call starts the count again"


def test_a_tool_called_unvalidated_is_noted() -> None:
    odd = {"odd": spec("odd", {"type": "nope"})}
    found = interpret(fresh(), calls(("odd", '{"a": 1}')), odd)
    assert found.event.calls[0].arguments == '{"a": 1}'
    assert "odd was called unvalidated" in found.notes[0]
