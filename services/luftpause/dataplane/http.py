"""How does a client's connection live: read a request, have it answered, read the next?

`Conn` is uvicorn's protocol class (`uvicorn.Config(http=...)`); the only HTTP parser on its connection is that of its `Reader`.
"""

import asyncio
from typing import Final, cast

from luftpause.dataplane.conn_ends import BODY, BUSY, CLOSING, HEAD, WAITING, ConnEnds
from luftpause.dataplane.door import Door
from luftpause.dataplane.exchange import Handler, Request
from luftpause.dataplane.reader import Reader
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CONTINUE, refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.kit.logs import Log

SMALL_BODY_BYTES: Final = 65_536  # a refused request with at most this is read to its end, so that the connection can go on

log = Log("dataplane")


class Conn(ConnEnds):
    handler: Handler | None

    __slots__ = ()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write = self._transport.write
        cast("set[ConnEnds]", self.server_state.connections).add(self)
        self.door.sweep.watch(self)

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


def protocol_of(the_door: Door) -> type[Conn]:
    """The class for `uvicorn.Config(http=...)`."""

    class BoundConn(Conn):
        door = the_door
        __slots__ = ()

    return BoundConn
