"""How does a client's connection live: read a request, have it answered, read the next?

`Conn` is uvicorn's protocol class (`uvicorn.Config(http=...)`); the only HTTP parser on its connection is that of its `Reader`.
"""

import asyncio
import socket
import struct
from enum import Enum
from typing import Any, ClassVar, Final, cast

import uvicorn
from uvicorn.server import ServerState

from luftpause.dataplane.door import Door
from luftpause.dataplane.exchange import Handler, Request
from luftpause.dataplane.reader import Reader
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CONTINUE, refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.kit.logs import Log

SMALL_BODY_BYTES: Final = 65_536  # a refused request with at most this is read to its end, so that the connection can go on
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

log = Log("dataplane")


class Phase(Enum):
    WAITING = "waiting"  # for a request to begin
    HEAD = "head"
    BODY = "body"
    BUSY = "busy"  # a handler has the request
    CLOSING = "closing"  # answered; what the client still sends is thrown away


WAITING, HEAD, BODY, BUSY, CLOSING = Phase  # a name of the module costs a tenth of an attribute of an Enum


class Conn(asyncio.Protocol):
    door: ClassVar[Door]

    __slots__ = (
        "_caller", "_eof_at", "_phase", "_reader", "_refused", "_slow_at", "_slow_bytes", "_taken", "_transport",
        "app", "app_state", "deadline", "handler", "headed", "keeps", "loop", "more", "server_state", "write",
    )  # fmt: skip

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.app = config.loaded_app
        self.app_state = app_state
        self.server_state = server_state
        self.loop = _loop or asyncio.get_running_loop()
        self._reader = self.door.reader()
        self._eof_at = NEVER  # since when the client's side is closed
        self._slow_at = NEVER  # until when a client that stopped reading must have taken a byte
        self._slow_bytes = 0
        self._taken = 0  # bytes of the body that are counted as held
        self._caller = ""  # of whom
        self.handler: Handler | None = None
        self._next()

    def _next(self) -> None:
        self._phase = WAITING
        self._refused: Rejection | None = None
        self.headed = False  # the head of the final answer is out
        self.keeps = False  # may another request follow?
        self.more = b""  # header lines for every answer to this request
        self.deadline = self.door.sweep.now + self.door.config.idle_connection_seconds

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write = self._transport.write
        cast("set[Conn]", self.server_state.connections).add(self)
        self.door.sweep.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        cast("set[Conn]", self.server_state.connections).discard(self)
        self.door.sweep.forget(self)
        self._phase = CLOSING
        self._leave()
        self.let_go()

    def data_received(self, data: bytes) -> None:
        if self._phase is BUSY:
            # Pipelined: refused by closing after this answer. Throwing it away keeps memory bounded and shows when the client leaves.
            self._reader.extra = True
            self.keeps = False
        elif self._phase is not CLOSING:
            rejection = self._reader.feed(data)
            if rejection is not None:
                self._refuse(rejection)
            else:
                self._advance()

    def eof_received(self) -> bool:
        if self._phase is not BUSY:
            return False
        self.keeps = False
        self._eof_at = self.deadline = self.door.sweep.now
        if not self.headed and self._reader.head.version == "1.1":
            self.write(CONTINUE)  # a client that is gone answers RST; one that only closed its side must ignore it (RFC 9110, 15.2)
        return True

    def pause_writing(self) -> None:
        self._slow_bytes = self._transport.get_write_buffer_size()
        self._slow_at = self.door.sweep.now + self.door.config.slow_reader_seconds
        self.deadline = min(self.deadline, self._slow_at)
        if self.handler is not None:
            self.handler.pause()

    def resume_writing(self) -> None:
        self._slow_at = NEVER
        if self._phase is WAITING:
            self._transport.resume_reading()
        if self.handler is not None:
            self.handler.resume()

    # ---- reading a request

    def _advance(self) -> None:
        reader = self._reader
        if self._phase is WAITING:
            self._phase = HEAD
            self.deadline = self.door.sweep.now + self.door.config.head_seconds_max
        if self._phase is HEAD and reader.head_done:
            self._phase = BODY
            self._head_done(reader)
        if self._phase is BODY and self._refused is None:
            self._take_room(reader)
        if self._phase is BODY:
            self._body_came(reader)

    def _body_came(self, reader: Reader) -> None:
        if reader.received > self.door.config.max_body_bytes:
            self._refuse(self.door.too_large())
        elif reader.complete:
            self._serve(reader)
        elif self._refused is not None:
            reader.drop_body()

    def _head_done(self, reader: Reader) -> None:
        head = reader.head
        self.keeps = head.keep_alive and not self.door.stopping
        self.more = self.door.cors(head)
        self._caller = self.door.caller(head)
        rejection = self.door.check(reader) or self.door.room.lacks(reader.body_bytes or 0, self._caller)
        if reader.complete:
            self._refused = rejection
            return
        self.deadline = self.door.sweep.now + self.door.config.body_seconds_max
        waits = b"expect" in head.named and head.version == "1.1" and not reader.received
        if rejection is None:
            if waits:
                self.write(CONTINUE)
        elif waits or reader.body_bytes is None or reader.body_bytes > SMALL_BODY_BYTES:
            self._refuse(rejection)
        else:
            self._refused = rejection

    def _take_room(self, reader: Reader) -> None:
        """Count what came of the body; it may be too much beside all others."""
        more = reader.received - self._taken
        if not more:
            return
        rejection = self.door.room.take(more, self._caller)
        if rejection is None:
            self._taken += more
        elif reader.complete:
            self._refused = rejection
        else:
            self._refuse(rejection)

    def _serve(self, reader: Reader) -> None:
        self._phase = BUSY
        self.deadline = NEVER
        self.keeps = self.keeps and not reader.extra
        if self._refused is not None:
            self.answer(refusal(self._refused, more=self.more, close=not self.keeps, bodiless=reader.head.method == "HEAD"))
            return
        request = Request(reader.head, reader.body(), reader.digits)
        reader.rest()
        try:
            self.door.serve(self, request)
        except Exception:
            log.exception("request_failed", path=request.head.path[:200])
            self._leave()
            self._refuse(Rejection(500, "internal", "the dataplane failed to answer; its log says why"))

    def _refuse(self, rejection: Rejection) -> None:
        """Answer at once and close: the rest of the request is unread or can't be trusted."""
        self._phase = BUSY
        self.keeps = False
        self.answer(refusal(rejection, more=self.more, close=True, bodiless=self._reader.head.method == "HEAD"))

    # ---- for handlers; `write` is the transport's

    @property
    def peer(self) -> tuple[str, int] | None:
        found = cast("tuple[str, int] | None", self._transport.get_extra_info("peername"))
        return found[:2] if found else None

    def answer(self, data: bytes) -> None:
        """A complete answer, head and body."""
        self.door.answers.add(self._reader.head.path, data)
        self.write(data)
        self.finish()

    def write_head(self, data: bytes) -> None:
        self.headed = True
        self.door.answers.add(self._reader.head.path, data)
        self.write(data)

    def let_go(self) -> None:
        """The body is not held any longer."""
        if self._taken:
            self.door.room.give_back(self._taken, self._caller)
            self._taken = 0

    def finish(self) -> None:
        """The answer is complete: on to the next request, or close as the head said."""
        self.handler = None
        self.let_go()
        if self._phase is not BUSY:
            return
        reader = self._reader
        if self.keeps:
            reader.next()
            self._next()
            if self._slow_at != NEVER:
                self._transport.pause_reading()  # first the client reads this answer: one more would go on top of it
        elif reader.complete and not reader.extra:
            self._close(self.door.config.slow_reader_seconds)
        else:
            # Closing with unread input would send RST, which may destroy the answer before it is read (RFC 9112, 9.6).
            self._phase = CLOSING
            self.deadline = self.door.sweep.now + self.door.config.linger_seconds
            self._transport.write_eof()

    def break_off(self, *, reset: bool) -> None:
        """The answer can't be completed: the client must see a broken transfer. `reset` where an orderly close would look complete."""
        self.handler = None
        if self._phase is not BUSY:
            return
        if reset:
            self._socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._phase = CLOSING
            self._transport.abort()
        else:
            self._close(self.door.config.slow_reader_seconds)

    # ---- ends

    def shutdown(self) -> None:
        """Called by uvicorn when it stops."""
        self.keeps = False
        if self._phase in {WAITING, HEAD}:
            self._close(self.door.config.linger_seconds)

    def abort(self) -> None:
        self._phase = CLOSING
        self._transport.abort()

    def expire(self, now: float) -> None:
        match self._phase:
            case Phase.WAITING | Phase.CLOSING if self._takes(now):
                pass
            case Phase.WAITING:
                self._close(self.door.config.slow_reader_seconds)
            case Phase.HEAD:
                self._refuse(Rejection(408, "head_timeout", f"no complete request head within {self.door.config.head_seconds_max:g} s"))
            case Phase.BODY:
                self._refuse(Rejection(408, "body_timeout", f"no complete request body within {self.door.config.body_seconds_max:g} s"))
            case Phase.BUSY:
                self._expire_busy(now)
            case Phase.CLOSING:
                self._transport.abort()

    def _expire_busy(self, now: float) -> None:
        if now >= self._slow_at and not self._takes(now):
            self._gone()
            return
        self.deadline = self._slow_at
        if self._eof_at != NEVER:
            sign = max(self._eof_at, self.handler.last_sign() if self.handler is not None else 0.0)
            if now >= sign + self.door.config.half_close_seconds or self._socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._gone()
            else:
                self.deadline = now  # nobody reads any more, so look at each sweep

    def _takes(self, now: float) -> bool:
        """Has the client taken some of what waits for it since it was last looked at? Then it has another `slow_reader_seconds`."""
        left, before = self._transport.get_write_buffer_size(), self._slow_bytes
        self._slow_bytes = left
        if not 0 < left < before:
            return False
        self._slow_at = self.deadline = now + self.door.config.slow_reader_seconds
        return True

    def _gone(self) -> None:
        self._phase = CLOSING
        self._leave()
        self._transport.abort()

    def _leave(self) -> None:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.client_left()

    def _close(self, seconds: float) -> None:
        """Close when what was written is sent; after `seconds` anyway."""
        self._phase = CLOSING
        self._slow_bytes = self._transport.get_write_buffer_size()
        self.deadline = self.door.sweep.now + seconds
        self._transport.close()

    def _socket(self) -> socket.socket:
        return cast("socket.socket", self._transport.get_extra_info("socket"))


def protocol_of(the_door: Door) -> type[Conn]:
    """The class for `uvicorn.Config(http=...)`."""

    class BoundConn(Conn):
        door = the_door
        __slots__ = ()

    return BoundConn
