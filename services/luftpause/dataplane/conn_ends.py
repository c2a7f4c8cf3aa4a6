"""What is known of a client's connection, how does it end, and when has its client taken too long?"""

import asyncio
import socket
import struct
from abc import abstractmethod
from enum import Enum
from typing import Any, ClassVar, Final, cast

import uvicorn
from uvicorn.server import ServerState

from luftpause.dataplane.door import Door
from luftpause.dataplane.exchange import Handler
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.sweep import NEVER

RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Phase(Enum):
    WAITING = "waiting"  # for a request to begin
    HEAD = "head"
    BODY = "body"
    BUSY = "busy"  # a handler has the request
    CLOSING = "closing"  # answered; what the client still sends is thrown away


WAITING, HEAD, BODY, BUSY, CLOSING = Phase  # a name of the module costs a tenth of an attribute of an Enum


class ConnEnds(asyncio.Protocol):
    """The part of `http.Conn` that reads nothing."""

    door: ClassVar[Door]

    __slots__ = (
        "_caller", "_eof_at", "_phase", "_reader", "_refused", "_slow_at", "_slow_bytes", "_taken", "_transport",
        "app", "app_state", "deadline", "half_close_seconds", "handler", "headed", "keeps", "loop", "more", "server_state", "write",
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
        self.half_close_seconds = self.door.config.half_close_seconds
        self.deadline = self.door.sweep.now + self.door.config.idle_connection_seconds

    @abstractmethod
    def _refuse(self, rejection: Rejection) -> None:
        """Answer at once and close."""

    def let_go(self) -> None:
        """The body is not held any longer."""
        if self._taken:
            self.door.room.give_back(self._taken, self._caller)
            self._taken = 0

    # ---- asyncio.Protocol

    def connection_lost(self, exc: Exception | None) -> None:
        cast("set[ConnEnds]", self.server_state.connections).discard(self)
        self.door.sweep.forget(self)
        self._phase = CLOSING
        self._leave()
        self.let_go()
        self._reader.close()

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

    # ---- ends

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
            if now >= sign + self.half_close_seconds or self._socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
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
