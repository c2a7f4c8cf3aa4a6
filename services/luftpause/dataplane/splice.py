"""How does a field get into a request's body whose every other byte stays?

The body is a JSON object with a field at least: it has a `model`.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

NAME: Final = b'"priority"'
MEMBERS_MAX: Final = 100_000  # of a body that is taken apart: no request has more colons, and each may cost time and memory


class Stated(Struct, gc=False):
    priority: Raw | UnsetType = UNSET


_stated: Final = msgspec.json.Decoder(Stated)
_members: Final = msgspec.json.Decoder(dict[str, Raw])


def with_member(body: bytes, member: bytes) -> bytes:
    """The body with one more member before its last brace."""
    end = body.rfind(b"}")
    view = memoryview(body)
    return b"".join((view[:end], b",", member, view[end:]))


def with_priority(body: bytes, priority: int) -> bytes:
    """The body with the scheduler's `priority`.

    A client's own is taken out, lest it overtake those with whom it shares: then the members are put together anew, each value byte for
    byte. What can't be taken apart keeps both, and engines read the last one.
    """
    if NAME in body:
        body = _without_own(body)
    return with_member(body, b'"priority":%d' % priority)


def _without_own(body: bytes) -> bytes:
    try:
        if _stated.decode(body).priority is UNSET or body.count(b":") > MEMBERS_MAX:
            return body
        members = _members.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    del members["priority"]
    return b"{%b}" % b",".join([b"%b:%b" % (msgspec.json.encode(name), memoryview(value)) for name, value in members.items()])
