"""Which numbers does a page of the scheduler take in its query, and what is asked for?"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError


class Takes(Struct, frozen=True):
    """A whole number from 0 to `most`; `default` where it is not given."""

    default: int
    most: int


def numbers(parameters: Sequence[tuple[str, str]], takes: Mapping[str, Takes], path: str) -> dict[str, int]:
    """What was asked for, with the defaults. Raises LuftpauseError (400) that names what is allowed."""
    found: dict[str, int] = {}
    for name, value in parameters:
        if name not in takes:
            raise _bad(f"{name!r} is not a parameter of {path}", takes)
        if name in found:
            raise _bad(f"{name} was given twice", takes)
        most = takes[name].most
        if not (value.isascii() and value.isdigit() and len(value) <= len(str(most)) and int(value) <= most):
            raise _bad(f"{name}={value[:100]!r} is not such a number", takes)
        found[name] = int(value)
    return {name: each.default for name, each in takes.items()} | found


def _bad(what: str, takes: Mapping[str, Takes]) -> LuftpauseError:
    names = " and ".join(f"{name} (a whole number from 0 to {each.most}, {each.default} if not given)" for name, each in takes.items())
    return LuftpauseError(f"{what}; it takes {names}", code="bad_parameter", status=400)
