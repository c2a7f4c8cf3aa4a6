"""What are engines told of a tool's schema, and does it allow all that the tool does?"""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.runtime.core.arguments import Accepted, Rejected, check
from luftpause.runtime.core.engine_schema import for_engines, without_nulls
from luftpause.runtime.core.history import functions
from luftpause.runtime.ports import ToolSpec

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}


def of(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (of(a={"type": "array"}), of(a={"type": "array", "items": {}})),
        (of(a={"type": ["array", "null"]}), of(a={"type": ["array", "null"], "items": {}})),
        (of(a={"type": "array", "items": [TEXT, NUMBER]}), of(a={"type": "array", "items": {"anyOf": [TEXT, NUMBER]}})),
        (of(a={"anyOf": [{"type": "array"}, TEXT]}), of(a={"anyOf": [{"type": "array", "items": {}}, TEXT]})),
        (of(a=True, b=False), of(a={}, b={"not": {}})),
        (of(a={"type": "number", "minimum": 0, "exclusiveMinimum": True}), of(a={"type": "number", "exclusiveMinimum": 0})),
        (of(a={"type": "number", "maximum": 9, "exclusiveMaximum": False}), of(a={"type": "number", "maximum": 9})),
        (of(a={**TEXT, "required": True}), of(a=TEXT)),
        ({"type": "object"}, of()),
        ({"$schema": "https://x", **of(a=TEXT), "additionalProperties": False}, {**of(a=TEXT), "additionalProperties": False}),
        (
            {"type": "object", "anyOf": [{**of(a=TEXT), "required": ["a"]}, {**of(b=NUMBER), "required": ["b"]}]},
            of(a=TEXT, b=NUMBER),
        ),
        (
            {"type": "object", "oneOf": [of(kind={"const": "a"}), of(kind={"const": "b"})]},
            of(kind={"anyOf": [{"const": "a"}, {"const": "b"}]}),
        ),
        (
            {"type": "object", "oneOf": [{**of(a=TEXT), "required": ["a", "b"]}, {**of(b=NUMBER), "required": ["b"]}], "required": ["c"]},
            {**of(a=TEXT, b=NUMBER), "required": ["c", "b"]},
        ),
        ({"type": "object", "allOf": [{**of(a=TEXT), "required": ["a"]}, of(b=TEXT)]}, {**of(a=TEXT, b=TEXT), "required": ["a"]}),
        (
            {"type": "object", "$ref": "#/$defs/X", "$defs": {"X": {**of(n=NUMBER), "required": ["n"]}}},
            {**of(n=NUMBER), "required": ["n"], "$defs": {"X": {**of(n=NUMBER), "required": ["n"]}}},
        ),
    ],
)  # fmt: skip
def test_what_engines_refuse_is_told_in_another_way(given: dict[str, Any], told: dict[str, Any]) -> None:
    assert for_engines(given) == told


def test_null_is_not_there() -> None:
    given = {**of(a={**TEXT, "enum": None, "default": None}, b=None), "required": None, "description": None}
    assert without_nulls(given) == of(a={**TEXT, "default": None})
    assert without_nulls({"type": "object", "properties": None}) == {"type": "object"}


def test_an_empty_list_is_an_object_where_only_one_can_stand() -> None:
    given: dict[str, Any] = {**of(a={"type": "object", "properties": []}, b={"type": "array", "items": []}), "$defs": [], "required": []}
    meant: dict[str, Any] = {**of(a=of(), b={"type": "array", "items": []}), "$defs": {}, "required": []}
    assert without_nulls(given) == meant
    assert without_nulls({"type": "object", "properties": [], "additionalProperties": []}) == {**of(), "additionalProperties": {}}


def test_a_schema_that_all_take_stays_as_it_is() -> None:
    given = {
        **of(a=TEXT, b={"type": "array", "items": {"$ref": "#/$defs/N"}}),
        "$defs": {"N": of(kids={"type": "array", "items": {"$ref": "#/$defs/N"}})},
    }
    assert list(for_engines(given).items()) == list(given.items())
    assert without_nulls(given) == given


def test_arguments_are_checked_against_the_tools_own_schema() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {},
        "anyOf": [{**of(a=TEXT), "required": ["a"]}, {**of(b=NUMBER), "required": ["b"]}],
    }
    tool = ToolSpec("t", "s", "t", "", schema, parameters=for_engines(schema))
    assert functions([tool])[0]["function"]["parameters"] == of(a=TEXT, b=NUMBER)
    assert check(tool, '{"b": 1}') == Accepted({"b": 1})
    found = check(tool, "{}")
    assert isinstance(found, Rejected)
    assert found.message.endswith('Expected: {"a": string (optional), "b": integer (optional)}')


SIMPLE: st.SearchStrategy[Any] = st.sampled_from([
    TEXT,
    NUMBER,
    {"type": "array"},
    {"type": "array", "items": TEXT},
    True,
    {"type": "null"},
    {"enum": ["x", 1]},
])
NAMES = st.sampled_from(["a", "b"])


def an_object(members: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    return {**of(**members), **({"required": needed} if needed else {})}


def branched(base: dict[str, Any], key: str, branches: list[dict[str, Any]]) -> dict[str, Any]:
    return {**base, key: branches} if branches else base


OBJECTS = st.builds(an_object, st.dictionaries(NAMES, SIMPLE), st.lists(NAMES, unique=True))
SCHEMAS = st.builds(branched, OBJECTS, st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(OBJECTS, max_size=3))
VALUES: st.SearchStrategy[Any] = st.dictionaries(NAMES, st.sampled_from(["x", 1, [], ["x"], [1], None, {}]))


@given(OBJECTS, VALUES)
def test_what_the_tool_takes_is_told_to_be_right(schema: dict[str, Any], value: dict[str, Any]) -> None:
    assert jsonschema.Draft202012Validator(for_engines(schema)).is_valid(value) == jsonschema.Draft202012Validator(schema).is_valid(value)


@given(SCHEMAS, VALUES)
def test_nothing_is_told_to_be_required_that_some_branch_does_without(schema: dict[str, Any], value: dict[str, Any]) -> None:
    told = for_engines(schema)
    assert not told.keys() & {"anyOf", "oneOf", "allOf"}
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert set(told.get("required", ())) <= value.keys()
