"""How does any value of the scheduler's core become JSON, and come back as the same value?

By its type, not by a list of fields: a new field, struct or enum of the core needs nothing here. What JSON can say stays as it is, a tuple
is an array, and everything else is an object whose only key names its type (`$Run`, `$bytes`, `$map` …).
"""

import base64
import math
from collections.abc import Callable
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, cast

import msgspec
from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core import decisions, events, guard_model, model, policies
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.sorted_set import SortedSet, sorted_set

CORE = "luftpause.scheduler.core."
WHOLE = (Settings,)  # written with their defaults: a later version may have others
_LOADED = (decisions, events, guard_model, model, policies)  # their classes are found by `_classes`

Json = Any
Encoder = Callable[[Any], Json]
PLAIN = (str, int, bool, NoneType)  # the same in JSON


class UnknownValueError(ValueError):
    """A value that can't be recorded, or a recorded one that this version does not know."""


# ---- out --------------------------------------------------------------------------------------------------------


def encode(value: object) -> Json:
    """Raises UnknownValueError on a type that the core does not use."""
    of: type = type(value)  # pyright: ignore[reportUnknownVariableType]
    return (_ENCODERS.get(of) or _encoder(of))(value)


def _encoder(of: type) -> Encoder:
    """How values of this type are encoded, remembered."""
    name = f"${of.__name__}"
    if issubclass(of, Enum):
        made: Encoder = lambda value: {name: value.value}  # noqa: E731
    elif issubclass(of, Struct):
        fields = tuple([(field.name, field.default) for field in msgspec.structs.fields(of)])
        made = lambda value: {name: _fields(value, fields)}  # noqa: E731
        if of in WHOLE:
            made = lambda value: {name: {field: encode(getattr(value, field)) for field, _ in fields}}  # noqa: E731
    elif issubclass(of, tuple):  # a named one
        made = lambda value: {name: _tuple(value)}  # noqa: E731
    else:
        raise UnknownValueError(f"a {of.__name__} can't be recorded")
    _ENCODERS[of] = made
    return made


def _fields(value: Struct, fields: tuple[tuple[str, object], ...]) -> dict[str, Json]:
    """Those that differ from their defaults."""
    found: dict[str, Json] = {}
    for name, default in fields:
        item = getattr(value, name)
        if item is not default and (type(item) is not type(default) or item != default):
            found[name] = item if type(item) in PLAIN else encode(item)
    return found


def _tuple(value: tuple[object, ...]) -> list[Json]:
    return [item if type(item) in PLAIN else encode(item) for item in value]


def to_bytes(value: Json) -> bytes:
    return msgspec.json.encode(value)


def _float(value: float) -> Json:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _map(value: "Map[Any, Any]") -> Json:
    """By the JSON of their keys, which are all different."""
    items = [(encode(key), item) for key, item in value.items()]
    return {"$map": [[key, encode(item)] for key, item in sorted(items, key=lambda item: to_bytes(item[0]))]}


_ENCODERS: dict[type, Encoder] = {
    **dict.fromkeys(PLAIN, lambda value: value),
    float: _float,
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    tuple: _tuple,
    Map: _map,
    SortedSet: lambda value: {"$sorted": [encode(item) for item in value]},
    frozenset: lambda value: {"$set": sorted([encode(item) for item in value], key=to_bytes)},
}


# ---- in ---------------------------------------------------------------------------------------------------------


def decode(value: Json) -> Any:
    """The value that `encode` was given. Raises UnknownValueError."""
    match value:
        case list():
            return tuple([decode(item) for item in cast("list[Json]", value)])
        case dict():
            ((name, inner),) = cast("dict[str, Json]", value).items()
            return _typed(name, inner)
        case _:
            return value


def _typed(name: str, inner: Json) -> Any:
    known = _DECODERS.get(name)
    if known is not None:
        return known(inner)
    of = _classes().get(name.removeprefix("$"))
    if of is None:
        raise UnknownValueError(f"this version's state has no {name.removeprefix('$')!r}; replay the log with the version that wrote it")
    try:
        if issubclass(of, Struct):
            return of(**{field: decode(item) for field, item in inner.items()})
        return of(inner) if issubclass(of, Enum) else of(*decode(inner))
    except (TypeError, ValueError) as error:
        raise UnknownValueError(f"{name.removeprefix('$')}: {error}; replay the log with the version that wrote it") from error


_DECODERS: dict[str, Callable[[Json], Any]] = {
    "$float": float,
    "$bytes": base64.b64decode,
    "$map": lambda inner: Map([(decode(key), decode(item)) for key, item in inner]),
    "$sorted": lambda inner: sorted_set(decode(item) for item in inner),
    "$set": lambda inner: frozenset(decode(item) for item in inner),
}


@cache
def _classes() -> dict[str, type]:
    """Structs, enums and named tuples of the core, by name."""
    found: dict[str, type] = {}
    for of in (*_below(Struct), *_below(Enum), *_below(tuple)):
        if of.__module__.startswith(CORE) and of is not SortedSet:
            if of.__name__ in found and found[of.__name__] is not of:
                raise UnknownValueError(f"two classes of the core are named {of.__name__}")
            found[of.__name__] = of
    return found


def _below(of: type) -> list[type]:
    return [each for kid in of.__subclasses__() for each in (kid, *_below(kid))]
