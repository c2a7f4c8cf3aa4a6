"""What does a client's request look like to the MCP SDK once all of it is here?"""

import contextlib
import json
from typing import Any, Final, cast

import orjson
from msgspec import Struct
from starlette.types import Message, Receive

from luftpause.runtime.core.json_types import is_object
from luftpause.runtime.json_bytes import without_lone_surrogates
from luftpause.runtime.ports import Json

BOM: Final = b"\xef\xbb\xbf"
EXACT_MAX: Final = 2**53  # beyond it a number with a point is no exact id
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"


class BodyTooLongError(Exception):
    """It is longer than it may be; the rest was not read."""


class LeftError(Exception):
    """The client left before it had sent all."""


class Asked(Struct, frozen=True):
    """`begins`: it asks for a new session. `version`: of the protocol, by the message itself. `wrong`: why nobody can answer it."""

    body: bytes
    begins: bool = False
    version: str = ""
    wrong: str = ""


async def read(receive: Receive, bytes_max: int) -> bytes:
    """Raises BodyTooLongError, LeftError."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise BodyTooLongError
        if not message.get("more_body", False):
            return without_lone_surrogates(bytes(body).removeprefix(BOM))


def replayed(body: bytes, receive: Receive) -> Receive:
    """Gives `body`, then what comes after it: the client's leaving."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again


def understood(body: bytes) -> Asked:
    """
    What the SDK does not say of a message, or would not take though it is clear what is meant.

    It takes a request whose id it doesn't like for a notification, so that its client waits for ever. What is no JSON stays, for the SDK to
    say so.
    """
    try:
        message: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Asked(body)
    if not is_object(message):
        batch = "a batch can't be answered: send one message per request" if isinstance(message, list) else ""
        return Asked(body, wrong=batch or "the body must be a JSON-RPC message, an object")
    asked_id: Any = _exact(message.get("id", 0), body)
    if "method" in message and not _is_id(asked_id):
        return Asked(body, wrong=f"`id` must be a whole number or a text, not {orjson.dumps(asked_id)[:40].decode(errors='replace')}")
    begins = message.get("method") == "initialize"
    meant = _meant(message)
    return Asked(body if meant is message else orjson.dumps(meant), begins, _version(message))


def _exact(asked_id: Any, body: bytes) -> Any:
    """A whole number of 20 digits was read as one with a point."""
    if isinstance(asked_id, float) and abs(asked_id) >= EXACT_MAX:
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(body).get("id")
    return asked_id


def _is_id(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer() and abs(value) < EXACT_MAX
    return isinstance(value, str) or type(value) is int


def _meant(message: Json) -> Json:
    """The message itself, unless it has an id of 1.0 (Lua), an empty list for an object (PHP), or arguments as their JSON text."""
    changes: Json = {}
    asked_id: Any = message.get("id")
    if isinstance(asked_id, float) and abs(asked_id) < EXACT_MAX:
        changes["id"] = int(asked_id)
    given: Any = message.get("params")
    if given == []:
        changes["params"] = {}
    elif is_object(given) and message.get("method") == "tools/call":
        arguments = _arguments(given.get("arguments"))
        if arguments is not given.get("arguments"):
            changes["params"] = {**given, "arguments": arguments}
    return {**message, **changes} if changes else message


def _arguments(given: Any) -> Any:
    if given in ([], ""):
        return {}
    if not isinstance(given, str):
        return given
    try:
        read: object = orjson.loads(given)
    except orjson.JSONDecodeError:
        return given
    return cast("object", read) if isinstance(read, dict) else given


def _version(message: Json) -> str:
    params: Any = message.get("params")
    meta: Any = params.get("_meta") if is_object(params) else None
    version: Any = meta.get(VERSION_KEY) if is_object(meta) else None
    return version if isinstance(version, str) else ""
