"""What does the fake engine answer, and how is it told to answer otherwise?"""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from luftpause.cli.fakes import fake_engine
from luftpause_fakes.engine_directives import DirectiveError, Directives, directives, without_directives
from luftpause_fakes.engine_schema import plausible
from luftpause_fakes.engine_script import Answer, Question, answer
from luftpause_fakes.engine_text import message_text, tokens_of


def tool(name: str, **properties: object) -> dict:
    schema = {"type": "object", "properties": properties or {"query": {"type": "string"}}, "required": list(properties) or ["query"]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


LOOKUP = tool("lookup")


def said(task: str, *results: str, **more: object) -> Answer:
    messages = [{"role": "user", "content": task}, *({"role": "tool", "content": result} for result in results)]
    return answer(Question(messages=messages, **{"tools": (LOOKUP,), **more}))


def calls_of(task: str) -> int:
    made = 0
    while said(task, *["found"] * made).calls:
        made += 1
    return made


def test_the_same_task_calls_as_often_and_answers_the_same_and_tasks_differ() -> None:
    counts = [calls_of(f"Task {number}") for number in range(40)]
    assert counts == [calls_of(f"Task {number}") for number in range(40)]
    assert set(counts) == {1, 2, 3}
    assert said("Task 1", *["found"] * 3) == said("Task 1", *["found"] * 3)


def test_without_tools_it_answers_at_once_and_names_the_task() -> None:
    found = said("How tall are herons?", tools=())
    assert (found.calls, found.finish) == ((), "stop")
    assert "How tall are herons" in found.text


def test_the_answer_names_what_a_person_asked_and_not_what_a_harness_put_before_it() -> None:
    reminder = "<system-reminder>\nAs you answer <b>all</b> questions …\n</system-reminder>\n"
    for task, named in (
        (f"{reminder}Say hello.", "“Say hello”"),
        (f"{reminder}{reminder}Say hello. <x>", "“Say hello. <x>”"),
        ("<cwd>/tmp</cwd>", "“<cwd>/tmp</cwd>”"),
        ("Is 1 < 2?", "“Is 1 < 2”"),
    ):
        assert f"On the task {named}:" in said(task, tools=()).text


def test_the_answer_tells_what_the_tools_returned() -> None:
    found = said("How tall? [calls=2]", "On one: The almanac lists 12.", "On two: The guide names 7.")
    assert "The almanac lists 12." in found.text
    assert "The guide names 7." in found.text
    assert "[" not in found.text


def test_the_calls_of_a_run_differ_from_each_other_and_from_another_tasks() -> None:
    arguments = [said(f"{task} [calls=3]", *["found"] * made).calls[0].arguments for task in ("Herons", "Storks") for made in range(3)]
    assert len(set(arguments)) == 6
    assert all(set(json.loads(each)) == {"query"} for each in arguments)


def test_left_to_itself_it_asks_and_never_deletes() -> None:
    tools = (tool("delete_note", id={"type": "string"}), tool("deep_search"), tool("fakes__lookup"))
    assert {said(f"Task {number}", tools=tools).calls[0].name for number in range(20)} == {"fakes__lookup"}


@pytest.mark.parametrize("name", ["cmd", "command", "script", "code"])
@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "array", "items": {"type": "string"}}])
def test_words_of_the_task_never_become_a_command(name: str, schema: dict) -> None:
    shell = tool("shell", **{name: schema})
    found = json.loads(said("What does `rm -rf ~` do; and $(reboot)?", tools=(shell,)).calls[0].arguments)[name]
    (line,) = [found] if schema["type"] == "string" else found
    assert re.fullmatch(r"echo note-[0-9a-f]{4}-0", line)


@pytest.mark.parametrize(
    ("choice", "results", "expected"),
    [
        ("none", 0, []),
        ("required", 9, ["lookup"]),
        ({"type": "function", "function": {"name": "add"}}, 9, ["add"]),
    ],
)
def test_tool_choice_is_heeded(choice: object, results: int, expected: list[str]) -> None:
    tools = (LOOKUP, tool("add", a={"type": "integer"}, b={"type": "integer"}))
    assert [call.name for call in said("Task", *["found"] * results, tools=tools, tool_choice=choice).calls] == expected


def test_a_directive_sets_number_tool_arguments_and_ids() -> None:
    tools = (LOOKUP, tool("srv__record", text={"type": "string"}))
    found = said('Do it [calls=3 parallel=2 tool=record,lookup args={"x": "a ] b"} ids=count]', tools=tools)
    assert [(call.id, call.name, call.arguments) for call in found.calls] == [
        ("call_0", "srv__record", '{"x":"a ] b"}'),
        ("call_1", "lookup", '{"x":"a ] b"}'),
    ]
    assert found.finish == "tool_calls"
    assert len(said("Do it [calls=3 parallel=2]", "one", "two").calls) == 1


def test_a_directive_in_the_arguments_of_another_is_for_whoever_gets_them() -> None:
    inner = 'Dig. [calls=2 tool=other args={"query":"deep"}]'
    task = f"Delegate. [calls=1 tool=lookup args={json.dumps({'prompt': inner})}]"
    (call,) = said(task).calls
    assert (call.name, json.loads(call.arguments)) == ("lookup", {"prompt": inner})
    assert without_directives(task) == "Delegate."


@pytest.mark.parametrize(
    ("ordered", "ids"), [("ids=call_0", ["call_0", "call_0"]), ("ids=none", ["", ""]), ("ids=count", ["call_0", "call_1"])]
)
def test_ids_are_reused_where_ordered(ordered: str, ids: list[str]) -> None:
    assert [call.id for call in said(f"Do it [calls=2 parallel=2 {ordered}]").calls] == ids


def test_ids_are_fresh_in_every_request_otherwise() -> None:
    ids = {said("Task [calls=1]", salt=salt).calls[0].id for salt in ("a", "b", "c")}
    assert len(ids) == 3
    assert all(len(each) >= 16 for each in ids)


def test_wrong_calls_come_first_and_then_right_ones() -> None:
    task = "Do it [calls=2 malformed=1 unknown=1]"
    first, second = said(task).calls[0], said(task, "error: no such tool").calls[0]
    assert first.name == "lookup_exact"
    with pytest.raises(json.JSONDecodeError):
        json.loads(first.arguments)
    assert second.name == "lookup"
    assert json.loads(second.arguments)


def test_a_tool_that_is_not_offered_is_called_where_ordered() -> None:
    assert said("Do it [calls=1 tool=get_wether]").calls[0].name == "get_wether"


@pytest.mark.parametrize(
    ("form", "begin", "end", "finish"),
    [
        ("text", "<tool_call>\n{", "}\n</tool_call>\n", "stop"),
        ("fenced", "```json\n{", "}\n```\n", "stop"),
        ("bare", '{"name"', "}\n", "stop"),
        ("cut", "<tool_call>\n{", "", "length"),
    ],
)
def test_a_call_comes_as_text_where_ordered(form: str, begin: str, end: str, finish: str) -> None:
    found = said(f"Do it [calls=1 form={form}]")
    assert (found.calls, found.finish) == ((), finish)
    assert found.text.startswith(begin)
    assert found.text.endswith(end)
    assert ("</tool_call>" in found.text) == (form == "text")


def test_length_text_and_finish_of_the_answer_can_be_ordered() -> None:
    assert tokens_of(said("Do it [calls=0 answer=200]").text) == 200
    assert said('Do it [calls=0 say="Forty two."]') == Answer("Forty two.")
    assert said("Do it [calls=0 finish=content_filter]").finish == "content_filter"


def test_a_later_user_message_overrides() -> None:
    messages = [
        {"role": "user", "content": "Do it [calls=0 answer=10]"},
        {"role": "user", "content": [{"type": "text", "text": "[calls=1]"}]},
    ]
    assert answer(Question(messages=messages, tools=(LOOKUP,))).calls


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        ("[calls=2 toll=lookup]", "'toll' is unknown; there are calls, parallel, tool"),
        ("[calls=many]", "calls=many must be a number"),
        ("[calls=1 args={oops}]", "args is not JSON"),
        ("[args=[1]]", "args must be a JSON object"),
        ("[form=loud]", "must be one of structured, text"),
        ("[calls=1", "not closed by ]"),
    ],
)
def test_a_wrong_directive_is_told(task: str, complaint: str) -> None:
    with pytest.raises(DirectiveError, match=complaint.replace("[", r"\[")):
        said(task)


def test_brackets_that_are_no_directives_are_left_alone() -> None:
    text = "See [1] and [the list] and a[i=0]"
    assert without_directives(text) == text
    assert directives([text]) == Directives()


def test_every_directive_is_explained_by_the_command_line() -> None:
    explained = [line.split("=")[0].strip() for line in (fake_engine.__doc__ or "").splitlines() if line.startswith("      ")]
    assert explained == list(Directives.__struct_fields__)


def test_a_tool_call_that_is_cut_shows_as_text_and_ends_with_length() -> None:
    whole = said("Task [calls=1]")
    cut = whole.cut(6)
    assert (cut.calls, cut.finish) == ((), "length")
    assert cut.text.startswith("<tool_call>")
    assert tokens_of(cut.text) == 6
    assert whole.cut(tokens_of(message_text(whole.message()))) == whole


def test_a_response_schema_gets_json_that_fits() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    Draft202012Validator(schema).validate(json.loads(said("Where?", tools=(), response_schema=schema).text))


leaves = st.sampled_from([
    {"type": "string"},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": ["null", "string"]},
    {"type": "integer", "minimum": 3, "maximum": 4},
    {"type": "integer", "exclusiveMinimum": 0},
    {"type": "number", "maximum": 0.5, "minimum": 0},
    {"type": "boolean"},
    {"type": "null"},
    {"enum": ["a", 2]},
    {"const": {"x": 1}},
    {"$ref": "#/$defs/name"},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    {},
])  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3))
        | st.builds(
            lambda properties, required: {"type": "object", "properties": properties, "required": sorted(properties)[:required]},
            st.dictionaries(st.sampled_from(["query", "id", "path", "city", "n"]), inner, max_size=4),
            st.integers(0, 4),
        )
        | st.builds(
            lambda one, two: {"allOf": [{"type": "object", "properties": {"p": one}}, {"properties": {"q": two}, "required": ["q"]}]},
            inner,
            inner,
        )
    ),
    max_leaves=6,
)


@given(schemas, st.integers(0, 20))
def test_arguments_fit_their_schema(schema: dict, number: int) -> None:
    rooted = {**schema, "$defs": {"name": {"type": "string", "minLength": 1}}}
    Draft202012Validator(rooted).validate(plausible(rooted, topic="Herons", number=number))


@pytest.mark.parametrize("tokens", [40, 75, 300])
def test_min_tokens_is_how_long_answers_and_calls_are_unless_the_task_orders_a_length(tokens: int) -> None:
    call = said("Task 1 [calls=1]", tokens_min=tokens)
    assert (call.finish, len(call.calls)) == ("tool_calls", 1)
    assert tokens_of(message_text(call.message())) == tokens
    assert tokens_of(said("Task 1 [calls=0]", tokens_min=tokens).text) == tokens
    assert tokens_of(said("Task 1 [calls=0 answer=5]", tokens_min=tokens).text) == 5
    longer_alone = said("Task 1 [calls=1]", tokens_min=1)
    assert longer_alone.text == ""
    assert longer_alone.calls
