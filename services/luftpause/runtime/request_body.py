"""What does a client's request look like to the MCP SDK once all of it is here?"""

from starlette.types import Message, Receive

from luftpause.runtime.json_bytes import without_lone_surrogates


class BodyTooLongError(Exception):
    """It is longer than it may be; the rest was not read."""


class LeftError(Exception):
    """The client left before it had sent all."""


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
            return without_lone_surrogates(bytes(body))


def replayed(body: bytes, receive: Receive) -> Receive:
    """Gives `body`, then what comes after it: the client's leaving."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again
