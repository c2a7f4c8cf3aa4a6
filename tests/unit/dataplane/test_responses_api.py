"""What does the body of an OpenAI Responses request say about its turn?"""

import json
from typing import Any

import pytest

from luftpause.dataplane.identify import Reading
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses_api import read_responses

KEY = b"key"
TOOLS = [{"type": "function", "name": "f"}]


def read(**body: Any) -> Reading:
    found = read_responses(json.dumps({"model": "m"} | body).encode(), KEY)
    assert isinstance(found, Reading), found
    return found


def refused(**body: Any) -> Rejection:
    found = read_responses(json.dumps(body).encode(), KEY)
    assert isinstance(found, Rejection)
    return found


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def call(call_id: Any, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "name": "f", "arguments": "{}", "id": "fc_1"}


def output(call_id: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": "x"}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize(
    ("items", "ids"),
    [
        ([said("a")], ()),
        ([said("a"), call("c1"), call("c2"), output("c1"), output("c2")], ("c2", "c1")),
        ([said("a"), call("c1"), output("c1"), REASONING, call("c2"), output("c2")], ("c2",)),
        ([said("a"), REASONING, call("c1"), REASONING, call("c2"), output("c1"), output("c2")], ("c2", "c1")),
        ([said("a"), call("c1"), output("c1"), said("done", "assistant"), said("more")], ("c1",)),
        ([output("c3"), output("c4")], ("c4", "c3")),  # behind a stored response
        ([call("x1", "custom_tool_call"), output("x1", "custom_tool_call_output")], ("x1",)),
        ([call("", "function_call"), output(""), output(None)], ()),
        ([output(f"c{n}") for n in range(100)], tuple(f"c{n}" for n in range(99, 35, -1))),
    ],
)
def test_echoed_ids_of_the_newest_calls_newest_first_none_empty(items: list[Any], ids: tuple[str, ...]) -> None:
    assert read(input=items).tool_call_ids == ids


def test_the_fields_that_matter() -> None:
    found = read(input="hello", stream=True, previous_response_id="resp_1")
    assert (found.model, found.stream, found.previous_response, found.stores) == ("m", True, "resp_1", True)
    assert found.mentions_usage  # nothing to ask for: each answer has it
    found = read(input="hello", store=False, stream=None, previous_response_id=None)
    assert (found.stream, found.previous_response, found.stores) == (False, "", False)


def test_what_is_missing_or_not_served_is_refused() -> None:
    assert (refused().status, refused().code) == (400, "no_model")
    assert (refused(model="m", background=True).status, refused(model="m", background=True).code) == (400, "background")
    assert refused(model="m", background=True, input=5).code == "background"
    assert read(background=False).model == "m"
    assert refused(model=5).code == "bad_field"
    assert read_responses(b"{", KEY) == Rejection(400, "not_json", "the body is not JSON: Input data was truncated")


@pytest.mark.parametrize("odd", [5, {"a": 1}, [5], [{"call_id": 7}], [None]])
def test_an_input_that_makes_no_sense_is_the_engines_to_judge(odd: Any) -> None:
    found = read(input=odd, previous_response_id="r", store=False, stream=True)
    assert (found.stream, found.previous_response, found.stores, found.tool_call_ids) == (True, "r", False, ())


def test_a_lone_surrogate_is_no_error() -> None:
    found = read_responses(
        rb'{"model":"m","input":[{"role":"user","content":"\ud83e"},{"type":"function_call_output","call_id":"c"}]}', KEY
    )
    assert isinstance(found, Reading)
    assert found.tool_call_ids == ("c",)


def test_the_head_is_recognised_in_every_form() -> None:
    part = [{"type": "input_text", "text": "task"}]
    forms = [
        read(instructions="be good", input="task", tools=TOOLS),
        read(instructions="be good", input=[said("task")], tools=TOOLS),
        read(instructions="be good", input=[said(part), call("c"), output("c")]),
        read(instructions="be good", input=[{"type": "message"} | said(part), said("b", "assistant"), said("c")], tools=TOOLS),
        read(input=[said("be good", "developer"), said("task")], tools=TOOLS),
    ]
    assert len({form.head_digest for form in forms}) == 1
    assert len(forms[0].head_digest) == 16
    assert read(instructions="be bad", input="task", tools=TOOLS).head_digest != forms[0].head_digest
    assert read(instructions="be good", input="other", tools=TOOLS).head_digest != forms[0].head_digest


def test_no_digest_where_it_tells_nothing() -> None:
    assert read(input="task").head_digest == b""
    assert read(input=[output("c")], previous_response_id="r", tools=TOOLS).head_digest == b""
