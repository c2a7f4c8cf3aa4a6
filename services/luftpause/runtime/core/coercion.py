"""Which value did a model mean where its type doesn't fit the tool's schema?"""

import json
import re
from typing import Any, Final

from luftpause.runtime.core import loose_json
from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.core.loose_json import NotJson
from luftpause.runtime.core.schema_shape import properties, required, resolve, types
from luftpause.runtime.ports import Json

DEPTH_MAX: Final = 16
INTEGER: Final = re.compile(r"[+-]?\d{1,300}\Z")
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
FITTING: Final[dict[type, frozenset[str]]] = {
    type(None): frozenset({"null"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    str: frozenset({"string"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
}
BOOLEANS: Final = {"true": True, "false": False}


def coerce(arguments: Json, schema: Json) -> Json:
    """`arguments` with scalars turned into the types that `schema` states; what can't be turned stays, for the validation to refuse.

    "3" → 3, "true" → true, 3 → "3", a lone value → a list of one, JSON text → the object or list that is expected; null for an optional
    member that may not be null is left out.
    """
    return _members(arguments, schema, schema, 0)


def _members(value: Json, schema: Json, root: Json, depth: int) -> Json:
    stated, needed = properties(schema), required(schema)
    changed: Json = {}
    for name, each in value.items():
        if name not in stated:
            changed[name] = each
            continue
        member = resolve(stated[name], root)
        allowed = types(member, root)
        if each is None and allowed and "null" not in allowed and name not in needed:
            continue
        changed[name] = _value(each, member, root, depth + 1)
    return changed


def _value(value: Any, schema: Json, root: Json, depth: int) -> Any:
    allowed = types(schema, root)
    if not allowed or depth > DEPTH_MAX:
        return value
    if not _fits(value, allowed):
        value = _scalar(value, allowed)
    if is_object(value) and "object" in allowed:
        return _members(value, _branch(schema, root, "object"), root, depth)
    if "array" not in allowed or (not is_list(value) and (_fits(value, allowed) or value is None)):
        return _whole_number(value, allowed)
    items = value if is_list(value) else [value]
    item = resolve(_branch(schema, root, "array").get("items"), root)
    return [_value(each, item, root, depth + 1) for each in items]


def _branch(schema: Json, root: Json, name: str) -> Json:
    """The part of `schema` that speaks of values of type `name`: itself, or the first such branch of an anyOf or oneOf."""
    for key in ("anyOf", "oneOf"):
        branches: Any = schema.get(key)
        for branch in branches if is_list(branches) else ():
            found = resolve(branch, root)
            if name in types(found, root):
                return found
    return schema


def _fits(value: Any, allowed: frozenset[str]) -> bool:
    if isinstance(value, float):
        return "number" in allowed or (value.is_integer() and "integer" in allowed)
    return not FITTING[type(value)].isdisjoint(allowed)


def _whole_number(value: Any, allowed: frozenset[str]) -> Any:
    """3.0 → 3 where only an integer is expected: the schema allows both, some tools only one."""
    if isinstance(value, float) and value.is_integer() and "integer" in allowed and "number" not in allowed:
        return int(value)
    return value


def _scalar(value: Any, allowed: frozenset[str]) -> Any:
    match value:
        case str():
            return _from_text(value.strip(), value, allowed)
        case bool() | int() | float() if "string" in allowed:
            return json.dumps(value)
        case _:
            return value


def _from_text(text: str, value: str, allowed: frozenset[str]) -> Any:
    if INTEGER.match(text) and allowed & {"integer", "number"}:
        return int(text)
    if NUMBER.match(text) and allowed & {"integer", "number"}:
        return _number(text, value, allowed)
    if "boolean" in allowed and text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if "null" in allowed and text.lower() in {"null", "none", ""}:
        return None
    if text[:1] in {"{", "["} and allowed & {"object", "array"}:
        return _container(text, value, allowed)
    return value


def _number(text: str, value: str, allowed: frozenset[str]) -> Any:
    number = float(text)
    finite = number - number == 0
    return number if finite and ("number" in allowed or number.is_integer()) else value


def _container(text: str, value: str, allowed: frozenset[str]) -> Any:
    try:
        parsed = loose_json.parse(text)
    except NotJson:
        return value
    return parsed if _fits(parsed, allowed) else value
