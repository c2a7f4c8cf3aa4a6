"""How does a call look in JSON or in markup that a model wrote?"""

from typing import Any, Final

from msgspec import Struct

from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.ports import Json

NESTING_MAX: Final = 4


class WrittenCall(Struct, frozen=True):
    name: str
    arguments: Any  # as written: an object, a string, null


def calls_of(value: Any, nesting: int = 0) -> tuple[WrittenCall, ...]:
    """The calls that a JSON value stands for; () if it, or a part of it, is something else."""
    if nesting > NESTING_MAX:
        return ()
    if is_list(value):
        found = [calls_of(each, nesting + 1) for each in value]
        return tuple(call for calls in found for call in calls) if all(found) else ()
    if not is_object(value):
        return ()
    for wrapper in ("tool_calls", "function", "tool_call", "function_call"):
        if isinstance(value.get(wrapper), dict | list):
            return calls_of(value[wrapper], nesting + 1)
    return _call(value)


def _call(members: Json) -> tuple[WrittenCall, ...]:
    name = members.get("name", members.get("function"))
    for key in ("arguments", "parameters"):
        if isinstance(name, str) and key in members:
            return (WrittenCall(name, members[key]),)
    return ()
