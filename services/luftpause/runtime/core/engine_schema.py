"""How is a tool's input schema told to engines, which refuse the whole turn for one that they don't take?

What is told never allows less than the tool does; arguments are validated against the tool's own schema.

| a tool's schema has | refused by | told |
|---|---|---|
| an array without `items`, or a list of them | OpenAI, Azure, VS Code | `items: {}`, or any of the list |
| `anyOf`, `oneOf`, `allOf`, `$ref`, `enum`, `not` at the top | OpenAI, Anthropic | the members of all branches |
| null for a keyword (Go; it is left out when the tool is listed) | all that validate | nothing |
| an empty list for an object, as in `properties: []` (PHP; mended when the tool is listed) | all that validate | `{}` |
| `true` or `false` for a schema | llama.cpp, Gemini | `{}`, `{"not": {}}` |
| `exclusiveMinimum: true`, `required: true` (drafts 3 and 4) | OpenAI | the number; nothing |
| `$schema`, `$id` at the top | Gemini | nothing |
"""

from collections.abc import Callable
from typing import Any, Final

from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.core.schema_shape import properties, required, resolve
from luftpause.runtime.ports import Json

DEPTH_MAX: Final = 64
ONE: Final = frozenset({"items", "not", "contains", "propertyNames", "if", "then", "else"})
NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
MAY_BE_BOOLEAN: Final = frozenset({"additionalProperties", "unevaluatedProperties", "additionalItems"})
OBJECTS: Final = NAMED | MAY_BE_BOOLEAN
VALUES: Final = frozenset({"default", "const"})  # null is one
BRANCHED: Final = ("allOf", "anyOf", "oneOf")
NOT_AT_THE_TOP: Final = frozenset({*BRANCHED, "enum", "not", "const", "$ref", "$schema", "$id", "if", "then", "else"})


def without_nulls(schema: Json) -> Json:
    """The schema as its tool means it: a keyword that is null is not there, and an empty list is an object where only one can stand."""
    return _each(schema, _no_nulls, 0)


def for_engines(schema: Json) -> Json:
    """An object's schema with `properties`. Members keep their order, so that the same tool begins every prompt with the same bytes."""
    return {"type": "object", "properties": {}, **_each(_flat(schema), _told, 0)}


def _flat(schema: Json) -> Json:
    """Without branches at the top: with the members of all, of which those are required that every branch requires."""
    if not schema.keys() & NOT_AT_THE_TOP:
        return schema
    members, needed = dict(properties(schema)), list(required(schema))
    for found in (resolve(schema, schema), *_branches(schema, "allOf")):
        members |= {name: each for name, each in properties(found).items() if name not in members}
        needed += required(found)
    for key in ("anyOf", "oneOf"):
        branches = _branches(schema, key)
        members |= {name: each for name, each in _either(branches).items() if name not in members}
        needed += [name for name in required(branches[0]) if all(name in required(each) for each in branches)] if branches else []
    kept = {key: value for key, value in schema.items() if key not in NOT_AT_THE_TOP}
    return {**kept, "properties": members} | ({"required": list(dict.fromkeys(needed))} if needed else {})


def _either(branches: list[Json]) -> Json:
    """The members of all; one that differs, such as the kind of each, may be any of them."""
    found: dict[str, list[Any]] = {}
    for branch in branches:
        for name, each in properties(branch).items():
            forms = found.setdefault(name, [])
            if each not in forms:
                forms.append(each)
    return {name: forms[0] if len(forms) == 1 else {"anyOf": forms} for name, forms in found.items()}


def _branches(schema: Json, key: str) -> list[Json]:
    given: Any = schema.get(key)
    return [resolve(each, schema) for each in given] if is_list(given) else []


def _no_nulls(schema: Any) -> Any:
    if not is_object(schema):
        return schema
    kept: Json = {key: value for key, value in schema.items() if value is not None or key in VALUES}
    return kept | {key: Json() for key, value in kept.items() if value == [] and key in OBJECTS}


def _told(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not is_object(schema):
        return schema
    told = dict(schema)
    if not is_list(told.get("required", [])):
        del told["required"]
    _numbers(told)
    if "array" in _names(told.get("type")) and "items" not in told:
        told["items"] = {}
    return told


def _each(schema: Any, change: Callable[[Any], Any], depth: int) -> Any:
    """`schema` with `change` made to it, and to each schema in it."""
    if not is_object(schema) or depth > DEPTH_MAX:
        return change(schema)
    return change({key: _within(key, value, change, depth + 1) for key, value in schema.items()})


def _within(key: str, value: Any, change: Callable[[Any], Any], depth: int) -> Any:
    if key == "items" and is_list(value) and change is _told:
        return {"anyOf": [_each(each, change, depth) for each in value]} if value else {}
    if key in ONE or (key in MAY_BE_BOOLEAN and is_object(value)):
        return _each(value, change, depth)
    if key in NAMED and is_object(value):
        return {name: _each(each, change, depth) for name, each in value.items() if each is not None}
    if key in LISTED and is_list(value):
        return [_each(each, change, depth) for each in value]
    return value


def _numbers(schema: Json) -> None:
    """Draft 4 says by a truth value whether the limit itself is allowed."""
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(strict := schema.get(exclusive), bool):
            del schema[exclusive]
            if strict and limit in schema:
                schema[exclusive] = schema.pop(limit)


def _names(stated: Any) -> list[Any]:
    return stated if is_list(stated) else [stated]
