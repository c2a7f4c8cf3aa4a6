"""Is a JSON value an object or a list, in a way that type checkers follow?"""

from typing import Any, TypeGuard

from luftpause.runtime.ports import Json


def is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
