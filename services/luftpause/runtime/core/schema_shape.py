"""How does a tool's input schema look in a few words, so that a small model can follow it?"""

from typing import Any, Final

from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.ports import Json

CHARS_MAX: Final = 800
DEPTH_MAX: Final = 3
OBJECT: Final = frozenset({"object"})
ARRAY: Final = frozenset({"array"})


def shape(schema: Json) -> str:
    """Such as `{"query": string, "limit": integer (optional)}`; cut after `CHARS_MAX`."""
    text = _object(schema, schema, 0)
    return text if len(text) <= CHARS_MAX else text[:CHARS_MAX] + " …"


def resolve(schema: Any, root: Json) -> Json:
    """The schema that a local `$ref` names; other schemas as they are; {} for what isn't one."""
    for _ in range(8):
        if not is_object(schema):
            return {}
        target: Any = schema.get("$ref")
        if not isinstance(target, str) or not target.startswith("#/"):
            return schema
        found: Any = root
        for part in target[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if is_object(found) else None
        schema = found
    return {}


def properties(schema: Json) -> Json:
    found: Any = schema.get("properties")
    return found if is_object(found) else {}


def required(schema: Json) -> tuple[str, ...]:
    found: Any = schema.get("required")
    return tuple(name for name in found if isinstance(name, str)) if is_list(found) else ()


def types(schema: Json, root: Json, nesting: int = 0) -> frozenset[str]:
    """The JSON types that `schema` allows, as far as it says so plainly; empty: it doesn't say."""
    stated: Any = schema.get("type")
    if isinstance(stated, str):
        return frozenset((stated,))
    if is_list(stated):
        return frozenset(name for name in stated if isinstance(name, str))
    if nesting > DEPTH_MAX:
        return frozenset()
    if "enum" in schema or "const" in schema:
        return _types_of_values(schema)
    for key in ("anyOf", "oneOf"):
        if is_list(branches := schema.get(key)):
            each = [types(resolve(branch, root), root, nesting + 1) for branch in branches]
            return frozenset[str]().union(*each) if all(each) else frozenset()
    return OBJECT if "properties" in schema else frozenset()


def _types_of_values(schema: Json) -> frozenset[str]:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", type(None): "null"}
    enum: Any = schema.get("enum")
    values = enum if is_list(enum) else [schema.get("const")]
    return frozenset(names[type(value)] for value in values if type(value) in names)


def _object(schema: Json, root: Json, depth: int) -> str:
    needed = required(schema)
    members = [
        f'"{name}": {_value(resolve(each, root), root, depth + 1)}{"" if name in needed else " (optional)"}'
        for name, each in properties(schema).items()
    ]
    return "{" + ", ".join(members) + "}"


def _value(schema: Json, root: Json, depth: int) -> str:
    if is_list(enum := schema.get("enum")):
        return "one of " + " | ".join(repr(value) if isinstance(value, str) else str(value) for value in enum[:12])
    allowed = types(schema, root)
    if allowed == OBJECT and properties(schema) and depth < DEPTH_MAX:
        return _object(schema, root, depth)
    if allowed == ARRAY and depth < DEPTH_MAX:
        return f"array of {_value(resolve(schema.get('items'), root), root, depth + 1)}"
    return " or ".join(sorted(allowed)) or "any value"
