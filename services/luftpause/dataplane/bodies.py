"""How is the little that luftpause needs read from a request body, whatever else stands in it?"""

import functools
import json
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar, cast

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.digest import TEXT_CHARS_MAX, bounded, head_digest
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.sse import BOM

TOOL_CALL_IDS_MAX: Final = 64  # echoed ids that are looked up
HEAD_MESSAGES_MAX: Final = 16  # before the first user message
KNOWN_MAX: Final = 256  # heads whose digest is remembered
KNOWN_BYTES_MAX: Final = 16_384  # longer ones are not: they would take memory
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
BIG_BYTES: Final = 2**20
PARTS_MAX: Final = 200_000  # objects, or lone surrogates, in a big body; no conversation has more, and each costs time and memory
TELLS_NOTHING: Final = "x-anthropic-billing-header:"  # Claude Code heads its system prompt with it; a part changes with every request
NO_MODEL: Final = Rejection(400, "no_model", "the body has no `model`; name one of those that GET /v1/models lists")

LONG_BYTES: Final = 262_144  # of a content: beyond it only what a digest reads is decoded
LONGEST_ESCAPE: Final = 12  # bytes of JSON text per character: two halves of a surrogate pair
END_BYTES: Final = (TEXT_CHARS_MAX + 4) * LONGEST_ESCAPE  # some more than is read: the cuts take a part


class Said(Struct, gc=False):
    """What luftpause can't do without, whatever the API."""

    model: str | None = None
    stream: bool | None = None


B = TypeVar("B")
L = TypeVar("L")
S = TypeVar("S", bound=Said)
T = TypeVar("T", bound=Said)
Head = list[tuple[str, bytes]]
"""Roles (system, user) and their contents as JSON text; empty: there is none."""


class TextPart(Struct, gc=False):
    text: str | UnsetType | None = UNSET


_parts: Final = msgspec.json.Decoder(list[TextPart])
_string: Final = msgspec.json.Decoder(str)


def plain(body: bytes) -> bytes:
    """Without a byte order mark: most engines pass over one, and nothing here would know where its object begins."""
    return body.removeprefix(BOM)


def request_of(body: bytes, full: msgspec.json.Decoder[S], least: msgspec.json.Decoder[T]) -> S | T | Rejection:
    """As `decode`, of a request that names its model."""
    found = decode(body, full, least)
    return found if isinstance(found, Rejection) or found.model else NO_MODEL


def decode(body: bytes, full: msgspec.json.Decoder[B], least: msgspec.json.Decoder[L]) -> B | L | Rejection:
    """Typed by `full`; where a field has an unexpected type, only by `least`: the rest is the engine's to judge.

    A body of endless tiny parts is read by `least` too: nobody else's turn is to wait for it.
    """
    if len(body) > BIG_BYTES and body.count(b"{") > PARTS_MAX:
        return _decode(body, least, least)
    return _decode(body, full, least)


def _decode(body: bytes, full: msgspec.json.Decoder[B], least: msgspec.json.Decoder[L]) -> B | L | Rejection:
    try:
        return full.decode(body)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        body = _without_surrogates(body)
    try:
        try:
            return full.decode(body)
        except msgspec.ValidationError:
            return least.decode(body)
    except msgspec.ValidationError as error:
        return Rejection(400, "bad_field", f"the body has a wrong field: {_plain(error)}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Rejection(400, "not_json", f"the body is not JSON: {_plain(error)}")


def _without_surrogates(body: bytes) -> bytes:
    """Lone halves are legal JSON, but no decoder here takes them; this is only read."""
    if len(body) > BIG_BYTES and body.count(b"\\ud") + body.count(b"\\uD") > PARTS_MAX:
        return body.replace(b"\\ud", b"\\uc").replace(b"\\uD", b"\\uC")  # other characters, but in a tenth of the time
    return SURROGATE.sub(rb"\\ufffd", body)


def _plain(error: Exception) -> str:
    return str(error).replace(" - at `$.", " at `").replace("Expected `object`, got", "it must be an object, not")


def content_of(raw: Raw | UnsetType) -> bytes:
    """A message's content for its digest, as JSON text; empty: there is none.

    Of a long one only what the digest reads: its text without images, or both ends of its text. All of it would keep the loop from
    everything else for a third of a second at 40 MB.
    """
    if isinstance(raw, UnsetType):
        return b""
    view = memoryview(raw)
    if len(view) <= LONG_BYTES:
        return bytes(view)
    if view[0] == ord('"'):
        return _ends_of(view)
    try:
        parts = _parts.decode(view)
    except msgspec.MsgspecError:
        return bytes(view)  # none of the usual forms
    return msgspec.json.encode([TextPart(bounded(part.text)) for part in parts if isinstance(part.text, str)])


def _ends_of(string: memoryview) -> bytes:
    """A JSON string whose text has the same ends as that of a long one."""
    first = _readable(b'"%b"' % string[1 : END_BYTES - cut] for cut in range(LONGEST_ESCAPE))
    last = _readable(b'"%b' % string[cut - END_BYTES :] for cut in range(LONGEST_ESCAPE))
    if first is None or last is None:
        return bytes(string)
    return msgspec.json.encode(first[:TEXT_CHARS_MAX] + last[-TEXT_CHARS_MAX:])


def _readable(cuts: Iterable[bytes]) -> str | None:
    """The first that is not cut within a character."""
    for cut in cuts:
        try:
            return _string.decode(cut)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return None


def digest_of(head: Head, key: bytes) -> bytes:
    """The digest of a conversation's head; remembered, as an agent sends the same head with every turn."""
    digest = _known_digest if sum(len(content) for _, content in head) <= KNOWN_BYTES_MAX else _digest
    return digest(tuple(head), key)


def _digest(head: tuple[tuple[str, bytes], ...], key: bytes) -> bytes:
    return head_digest([(role, text_of(content)) for role, content in head], key)


_known_digest = functools.lru_cache(maxsize=KNOWN_MAX)(_digest)


def text_of(raw: bytes) -> str:
    """The text of a message whose content is a string, a list of parts, null or missing (empty)."""
    if not raw:
        return ""
    try:
        value: object = orjson.loads(raw) if len(raw) <= KNOWN_BYTES_MAX else msgspec.json.decode(raw)  # orjson takes 12 times its length
    except (orjson.JSONDecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _lenient(raw.decode("utf-8", "replace"))
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts = cast("list[Any]", value)
    texts = [cast("str", part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]  # pyright: ignore[reportUnknownMemberType]
    return "\n".join([text for text in texts if not text.startswith(TELLS_NOTHING)])


def _lenient(text: str) -> object:
    """Lone surrogates are read as they are. What no decoder takes (an integer of 5,000 digits) is its own text: the engine judges it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
