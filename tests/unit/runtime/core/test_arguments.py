"""Do tool arguments come out right, or with an error that a model can act on?"""

import json
from typing import Any

import pytest

from luftpause.runtime.core.arguments import Accepted, Rejected, check
from luftpause.runtime.ports import ToolSpec

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
    },
    "required": ["query"],
    "$defs": {"Place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
}


def tool(schema: dict[str, Any], name: str = "lookup") -> ToolSpec:
    return ToolSpec(name=name, server="s", original=name, description="", input_schema=schema)


LOOKUP = tool(SCHEMA)
ANYTHING = tool({"type": "object"})


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ({"query": "x"}, {"query": "x"}),
        ('{"query": "x"}', {"query": "x"}),
        ('{"query": "x",}', {"query": "x"}),
        ('{"query": "a, }", "tags": ["y",],}', {"query": "a, }", "tags": ["y"]}),
        ('"{\\"query\\": \\"x\\"}"', {"query": "x"}),
        (json.dumps(json.dumps(json.dumps({"query": "x"}))), {"query": "x"}),
        ('```json\n{"query": "x"}\n```', {"query": "x"}),
        ('  {"query": "line\nbreak"} ', {"query": "line\nbreak"}),
        ({"query": 3}, {"query": "3"}),
        ({"query": 3.5}, {"query": "3.5"}),
        ({"query": True}, {"query": "true"}),
        ({"query": "x", "limit": "3"}, {"query": "x", "limit": 3}),
        ({"query": "x", "limit": " 3 "}, {"query": "x", "limit": 3}),
        ({"query": "x", "limit": "3.0"}, {"query": "x", "limit": 3.0}),
        ({"query": "x", "limit": 3.0}, {"query": "x", "limit": 3}),
        ({"query": "x", "ratio": "1e-3"}, {"query": "x", "ratio": 0.001}),
        ({"query": "x", "deep": "True"}, {"query": "x", "deep": True}),
        ({"query": "x", "tags": "a"}, {"query": "x", "tags": ["a"]}),
        ({"query": "x", "tags": 7}, {"query": "x", "tags": ["7"]}),
        ({"query": "x", "tags": '["a", "b"]'}, {"query": "x", "tags": ["a", "b"]}),
        ({"query": "x", "where": '{"lat": "1.5"}'}, {"query": "x", "where": {"lat": 1.5}}),
        ({"query": "x", "where": "null"}, {"query": "x", "where": None}),
        ({"query": "x", "limit": None}, {"query": "x"}),
        ({"query": "x", "more": "3"}, {"query": "x", "more": "3"}),
        ({"name": "lookup", "arguments": {"query": "x"}}, {"query": "x"}),
        ('{"query": "a", "query": "a"}', {"query": "a"}),
        ('{"query": "\\ud83e"}', {"query": "\ufffd"}),
        ({"query": "\ud83d\ude00\ud83e"}, {"query": "😀\ufffd"}),
    ],
)
def test_what_a_model_meant_is_made_to_fit(raw: Any, arguments: dict[str, Any]) -> None:
    assert check(LOOKUP, raw) == Accepted(arguments)


@pytest.mark.parametrize("raw", [None, "", "  ", "null", "[]", [], {}, '"null"', '""'])
def test_nothing_counts_as_an_empty_object_where_nothing_is_required(raw: Any) -> None:
    assert check(ANYTHING, raw) == Accepted({})
    assert isinstance(check(LOOKUP, raw), Rejected)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (None, "'query' is a required property"),
        ('{"query": "x"', "not valid JSON"),
        ("query=x", "not valid JSON"),
        ("[1]", "must be a JSON object, not a list"),
        ("5", "must be a JSON object, not a number"),
        ([{"query": "x"}], "must be a JSON object, not a list"),
        ('{"query": "x", "ratio": 1e400}', "1e400 is too big"),
        ('{"query": "x", "limit": ' + "9" * 5000 + "}", "is too big"),
        ({"query": "x", "ratio": float("inf")}, "not valid JSON"),
        ('{"query": "x", "ratio": NaN}', "NaN is no JSON number"),
        ('{"query": "a", "query": "b"}', "the key 'query' is there twice"),
        ({"query": None}, "query: None is not of type 'string'"),
        ({"query": ["x"]}, "query: ['x'] is not of type 'string'"),
        ({"query": "x", "limit": "three"}, "limit: 'three' is not of type 'integer'"),
        ({"query": "x", "limit": True}, "limit: True is not of type 'integer'"),
        ({"query": "x", "tags": [["a"]]}, "tags[0]: ['a'] is not of type 'string'"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_does_not_fit_is_rejected_with_path_and_shape(raw: Any, said: str) -> None:
    rejected = check(LOOKUP, raw)
    assert isinstance(rejected, Rejected)
    assert said in rejected.message
    assert rejected.message.startswith("Error: invalid arguments for lookup: ")
    assert 'Expected: {"query": string, "limit": integer (optional), ' in rejected.message


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        (SCHEMA, SCHEMA),
        (SCHEMA, {"query": {"type": "string"}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
        ({"type": "object", "properties": {"x": {"title": "X"}}}, {"x": {"title": "X"}}),
    ],
)
def test_the_schema_sent_back_is_no_argument(schema: dict[str, Any], raw: Any) -> None:
    rejected = check(tool(schema), raw)
    assert isinstance(rejected, Rejected)
    assert "this is the tool's schema; send values instead" in rejected.message


def test_a_tool_that_takes_properties_may_get_them() -> None:
    schema = {"type": "object", "properties": {"properties": {"type": "object"}}}
    assert check(tool(schema), {"properties": {"a": 1}}) == Accepted({"properties": {"a": 1}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"type": 12},
        {"properties": []},
        {"required": 3},
        {"$schema": 5},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"anyOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_can_not_be_used_is_no_reason_not_to_call_the_tool(schema: dict[str, Any]) -> None:
    accepted = check(tool(schema), {"a": "1"})
    assert isinstance(accepted, Accepted)
    assert accepted.arguments == {"a": "1"}
    assert "its input schema" in accepted.unvalidated


def test_a_long_value_does_not_make_a_long_error() -> None:
    rejected = check(LOOKUP, {"query": "x", "limit": "y" * 100_000})
    assert isinstance(rejected, Rejected)
    assert len(rejected.message) < 1500
