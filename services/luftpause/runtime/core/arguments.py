"""Do the arguments of a tool call fit its schema, and can they be made to fit?"""

import functools
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from msgspec import Struct
from referencing.exceptions import Unresolvable

from luftpause.runtime.core import loose_json
from luftpause.runtime.core.coercion import coerce
from luftpause.runtime.core.json_types import is_object
from luftpause.runtime.core.loose_json import NotJson
from luftpause.runtime.core.schema_shape import properties, shape
from luftpause.runtime.core.text import whole, whole_json
from luftpause.runtime.ports import Json, ToolSpec

UNWRAPS_MAX: Final = 3  # JSON in a JSON string in a JSON string
DETAIL_CHARS_MAX: Final = 300
VALIDATORS_MAX: Final = 2048
SCHEMA_KEYWORDS: Final = frozenset({"$schema", "$defs", "additionalProperties", "description", "properties", "required", "title", "type"})

_KINDS: Final[dict[type, str]] = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list"}


class Accepted(Struct, frozen=True):
    """`unvalidated`: why the tool's schema could not be used ("": it was)."""

    arguments: Json
    unvalidated: str = ""


class Rejected(Struct, frozen=True):
    """`message` is what the model reads; `arguments` what it sent, {} where that was no object."""

    message: str
    arguments: Json


def check(tool: ToolSpec, raw: Any) -> Accepted | Rejected:
    """Parse, coerce (spec/4 "Tool-call reliability") and validate. `raw` is text, or whatever the engine put there."""
    schema = tool.input_schema
    try:
        sent = _unwrap_call(_as_object(raw), tool)
    except NotJson as error:
        return Rejected(_message(tool, str(error)), {})
    if _is_schema_echo(sent, schema):
        return Rejected(_message(tool, "this is the tool's schema; send values instead"), sent)
    arguments = coerce(sent, schema)
    validator = _validator_of(schema)
    if isinstance(validator, str):
        return Accepted(arguments, validator)
    try:
        error = min(validator.iter_errors(arguments), key=_depth, default=None)
    except (Unresolvable, RecursionError, TypeError, ValueError, LookupError) as broken:
        return Accepted(arguments, f"its input schema can't be used ({type(broken).__name__})")
    return Rejected(_message(tool, _detail(error)), sent) if error else Accepted(arguments)


def unchecked(tool: ToolSpec, raw: Any, why: str) -> Accepted | Rejected:
    """As `check` where the tool's schema can't be used: an object is passed on as it was sent."""
    try:
        return Accepted(_as_object(raw), why)
    except NotJson as error:
        return Rejected(whole(f"Error: invalid arguments for {tool.name}: {error}."), {})


def _as_object(raw: Any) -> Json:
    """None, "", "null" and "[]" count as {}. Raises NotJson for what is no object."""
    value = raw
    if not isinstance(raw, str | None):  # parsed by the engine or the client: look at its numbers all the same
        try:
            value = loose_json.dump(raw)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotJson(f"not valid JSON: {error}") from error
    for _ in range(UNWRAPS_MAX):
        if isinstance(value, str):
            value = loose_json.parse(value) if value.strip() else None
    if value is None or value == []:
        return {}
    if not is_object(value):
        raise NotJson(f"the arguments must be a JSON object, not {_kind(value)}")
    return whole_json(value)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null")


def _unwrap_call(sent: Json, tool: ToolSpec) -> Json:
    """Some models put the whole call, name and all, where its arguments belong."""
    if sent.keys() not in ({"name", "arguments"}, {"name", "parameters"}) or sent["name"] not in {tool.name, tool.original}:
        return sent
    if sent.keys() <= properties(tool.input_schema).keys():
        return sent
    return _as_object(sent.get("arguments", sent.get("parameters")))


def _is_schema_echo(sent: Json, schema: Json) -> bool:
    """Did the model send the schema, or the schemas of its members, in place of values?"""
    members = properties(schema)
    if is_object(sent.get("properties")) and "properties" not in members and sent.keys() <= SCHEMA_KEYWORDS:
        return True
    return bool(sent) and all(is_object(each) and each == members.get(name) for name, each in sent.items())


def _validator_of(schema: Json) -> Validator | str:
    try:
        return _validator(loose_json.dump(schema))
    except (TypeError, ValueError, RecursionError):
        return "its input schema is no JSON"


@functools.lru_cache(VALIDATORS_MAX)
def _validator(schema_text: str) -> Validator | str:
    """A validator, or why there is none. The registry knows the published drafts only: a `$ref` never reaches the network."""
    try:
        schema: Json = loose_json.parse(schema_text)
        kind: type[Validator] = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except SchemaError as error:
        return f"its input schema is invalid: {_cut(error.message)}"
    except (NotJson, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        return f"its input schema can't be used ({type(error).__name__})"
    return kind(schema, registry=REGISTRY)


def _depth(error: ValidationError) -> int:
    return len(error.absolute_path)


def _detail(error: ValidationError) -> str:
    path = error.json_path.removeprefix("$").removeprefix(".")
    return f"{path}: {_cut(error.message)}" if path else _cut(error.message)


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS_MAX else text[:DETAIL_CHARS_MAX] + " …"


def _message(tool: ToolSpec, detail: str) -> str:
    return whole(f"Error: invalid arguments for {tool.name}: {detail}. Expected: {shape(tool.parameters or tool.input_schema)}")
