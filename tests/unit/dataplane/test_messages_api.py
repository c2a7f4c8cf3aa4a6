"""What does the body of an Anthropic Messages request say about its turn?"""

import json
from typing import Any

import pytest

from luftpause.dataplane.identify import Reading
from luftpause.dataplane.messages_api import read_messages, read_model
from luftpause.dataplane.rejection import Rejection

KEY = b"key"
TOOLS = [{"name": "f", "input_schema": {}}]


def read(**body: Any) -> Reading:
    found = read_messages(json.dumps({"model": "m"} | body).encode(), KEY)
    assert isinstance(found, Reading), found
    return found


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def uses(*ids: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [text("let me see"), *({"type": "tool_use", "id": each, "name": "f", "input": {}} for each in ids)],
    }


def result(call: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": "x"}


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([said("a")], ()),
        ([said("a"), uses("c1", "c2"), user(result("c1"), result("c2"))], ("c2", "c1")),
        ([said("a"), uses("c1"), user(result("c1")), uses("c2"), user(result("c2"), text("go on"))], ("c2",)),
        ([said("a"), uses("c1"), user(result("c1")), said("done", "assistant"), said("more")], ("c1",)),
        ([user(result("c3"))], ("c3",)),
        ([user(result("orphan")), said("a")], ("orphan",)),
        ([uses("", None), user(result(""), result(None))], ()),
        ([uses("c1", 7), user(result("c1"))], ("c1",)),
        ([said('"tool_use"'), said('{"type": "tool_use", "id": "no"}', "assistant")], ()),
        ([user(*(result(f"c{n}") for n in range(100)))], tuple(f"c{n}" for n in range(99, 35, -1))),
        ([said("a"), {"role": "user", "content": 5}, {"role": "user"}, {"role": "user", "content": None}], ()),
        ([user({"type": "server_tool_use", "id": "srv"}, 5, None, result("c"))], ("c",)),
    ],
)
def test_echoed_ids_newest_first_none_empty(messages: list[Any], ids: tuple[str, ...]) -> None:
    assert read(messages=messages).tool_call_ids == ids


def test_the_head_is_recognised_in_every_form() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    forms = [
        read(system="be good", messages=[said("task")], tools=TOOLS),
        read(system=[text("be good")], messages=[user(text("task"))], tools=TOOLS),
        read(system=[text("be good", **cached)], messages=[user(text("task", **cached)), uses("c"), user(result("c"))]),
        read(system=[text("x-anthropic-billing-header: cch=1;"), text("be good")], messages=[said("task")], tools=TOOLS),
        read(system=[text("x-anthropic-billing-header: cch=2;"), text("be good")], messages=[said("task"), said("b")], tools=TOOLS),
    ]
    assert len({form.head_digest for form in forms}) == 1
    assert len(forms[0].head_digest) == 16
    assert read(system="be bad", messages=[said("task")], tools=TOOLS).head_digest != forms[0].head_digest
    assert read(system="be good", messages=[said("other")], tools=TOOLS).head_digest != forms[0].head_digest
    assert read(messages=[said("task")], tools=TOOLS).head_digest != forms[0].head_digest
    assert read(system="be good", messages=[said("task")]).head_digest == b""


def test_the_fields_that_matter() -> None:
    found = read(stream=True, messages=[])
    assert (found.model, found.stream, found.mentions_usage, found.stores) == ("m", True, True, False)
    assert read(stream=True, messages="odd").stream


@pytest.mark.parametrize("reader", [read_messages, read_model])
def test_what_is_missing_is_refused(reader: Any) -> None:
    def code(body: bytes) -> str:
        found = reader(body, KEY)
        assert isinstance(found, Rejection)
        assert found.status == 400
        return found.code

    assert code(b"{}") == "no_model"
    assert code(b'{"model": ""}') == "no_model"
    assert code(b'{"model": 5}') == "bad_field"
    assert code(b"[]") == "bad_field"
    assert code(b'{"model": "m"') == "not_json"
