"""How does one connection to an engine carry one request after the other, and when is an answer good, complete or lost?"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from luftpause.dataplane.answer_head import AnswerHead, HeadParser
from luftpause.dataplane.framing import Chunked, Framing, FramingError, UntilClose
from luftpause.dataplane.sweep import NEVER, NEXT_LOOK

if TYPE_CHECKING:
    from luftpause.dataplane.upstream import Connecting, Pool


VERSION: Final = b"HTTP/1."
END_OF_LINE_AND_CHUNK: Final = b"\n\r\n"

Straight = tuple[Callable[[bytes], object], Callable[[bytes], None]]
"""What finds that a read must be looked at (else it gives None), and where to write one that need not."""


class Receiver(Protocol):
    """Whoever waits for an answer. After `unreachable`, `broken` or the last `body` nothing more is called.

    `upstream` is where the request is now; calling its `abort` ends all calls too. While `straight` is set after a call of `body`, reads
    that are one whole chunk and end a line need not come by `body`.
    """

    upstream: "Connection | Connecting | None"

    @property
    def straight(self) -> Straight | None: ...

    def sent(self) -> None:
        """The request was written to the engine; once more if the first connection was stale."""
        ...

    def head(self, head: AnswerHead) -> None: ...

    def body(self, raw: bytes, payload: bytes, done: bool) -> None:
        """What a read brought of the body: as it came, and without its framing."""
        ...

    def unreachable(self, reason: str) -> None:
        """No connection: the engine has not seen the request."""
        ...

    def broken(self, reason: str, why: str) -> None:
        """`why`: engine_died, first_byte_timeout, idle_timeout; before or after `head`."""
        ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_closed", "_collected", "_framing", "_head_bytes", "_keeps", "_out", "_paused", "_pool", "_receiver", "_reused", "_sizes",
        "_straight", "_transport", "_unbooked", "deadline", "last_read",
    )  # fmt: skip

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._receiver: Receiver | None = None
        self._framing: Framing | None = None
        self._keeps = True
        self._collected: bytes = b""  # of a head that is not complete
        self._head_bytes = 0  # of interim answers before it
        self._out = b""  # kept until the first byte of the answer: a stale connection costs one more try
        self._reused = False
        self._closed = False
        self._paused = False
        self._straight: Straight | None = None
        self._sizes = pool.sizes
        self._unbooked = 0  # bytes that came since the sweep looked
        self.deadline = NEVER
        self.last_read = 0.0  # to the sweep's precision

    @property
    def usable(self) -> bool:
        return not self._closed and not self._transport.is_closing()

    def send(self, out: bytes, receiver: Receiver) -> None:
        sweep = self._pool.sweep
        self._receiver = receiver
        self._framing = None
        self._head_bytes = 0
        self._out = out
        self.deadline = sweep.now + self._pool.config.first_byte_seconds
        self.last_read = sweep.now
        receiver.upstream = self
        self._pool.flow.sent_bytes += len(out)
        self._transport.write(out)
        receiver.sent()

    def idle(self) -> None:
        """Wait for another request."""
        self.resume()
        self._reused = True
        self.deadline = self._pool.sweep.now + self._pool.config.idle_upstream_seconds

    def abort(self) -> None:
        """Nobody wants the answer any more: the engine sees its socket closed and stops generating."""
        self._receiver = self._straight = None
        self._drop()
        self._transport.abort()

    def pause(self) -> None:
        """The client does not read; that this engine is silent now is not its fault."""
        if not self._paused and self.usable:
            self._paused = True
            self._transport.pause_reading()
            self._book(self._pool.sweep.now)
            self.deadline = NEVER

    def resume(self) -> None:
        if self._paused and self.usable:
            self._paused = False
            self._transport.resume_reading()
            self.deadline = self._pool.sweep.now + self._pool.config.idle_seconds

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pool.flow.made += 1
        self._pool.flow.open += 1
        self._pool.sweep.watch(self)

    def data_received(self, data: bytes) -> None:
        """Nearly every read of a stream is one chunk with one event that tells nothing: it takes no more than the first lines."""
        straight = self._straight
        if straight is not None:
            size = self._sizes.get(len(data))
            if size is not None and data.startswith(size) and data.endswith(END_OF_LINE_AND_CHUNK) and straight[0](data) is None:
                straight[1](data)
                self._unbooked += len(data)
                self.deadline = NEXT_LOOK
                return
        receiver = self._receiver
        if receiver is None:
            self.abort()  # an idle engine has nothing to say
            return
        self._unbooked += len(data)
        framing = self._framing
        if framing is None:
            self._book(self._pool.sweep.now)
            self._head(data)  # a head that drips does not gain time
        else:
            self.deadline = NEXT_LOOK
            self._body(receiver, framing, data)

    def _body(self, receiver: Receiver, framing: Framing, data: bytes) -> None:
        was_straight = self._straight is not None
        self._straight = None
        try:
            end = framing.feed(data)
        except FramingError as error:
            self._break(f"sent a malformed answer ({error})", "engine_died")
            return
        if framing.done:
            self._complete(receiver, framing, data, end)
            return
        receiver.body(data, framing.payload, False)
        if receiver.straight is not None and self._receiver is receiver and isinstance(framing, Chunked) and framing.between:
            self._straight = receiver.straight
            if was_straight:
                self._pool.remember_size(data, len(framing.payload))

    def _book(self, now: float) -> None:
        """What came is counted and gives time not at each read but when the sweep looks, and at the end of an answer."""
        self.last_read = now
        self._pool.delivered = True
        self._pool.flow.received_bytes += self._unbooked
        self._unbooked = 0

    def eof_received(self) -> bool:
        receiver = self._receiver
        if receiver is not None and isinstance(self._framing, UntilClose):
            self._receiver = self._straight = None
            receiver.body(b"", b"", True)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.flow.open -= 1
        receiver, out = self._receiver, self._out
        self._drop()
        if receiver is None:
            return
        self._receiver = None
        if self._reused and out:
            self._pool.try_again(out, receiver)  # stale: the engine had closed it before it saw the request
            return
        what = "before it answered" if self._framing is None else "in the middle of its answer"
        receiver.broken(f"closed the connection {what}" + (f" ({exc})" if exc is not None else ""), "engine_died")

    def expire(self, now: float) -> None:
        config = self._pool.config
        if self._unbooked:
            self._book(now)
            self.deadline = now + config.idle_seconds
        elif self._receiver is None:
            self.abort()
        elif self._framing is None:
            self._break(f"did not answer within {config.first_byte_seconds:g} s", "first_byte_timeout")
        else:
            self._break(f"sent nothing for {config.idle_seconds:g} s", "idle_timeout")

    # ---- reading an answer

    def _head(self, data: bytes) -> None:
        """Heads of interim answers are passed over; all heads of an answer together keep to the limit."""
        self._out = b""
        if not self._collected and not self._head_bytes and self._known_head(data):
            return
        data = self._collected + data
        self._collected = b""
        config = self._pool.config
        at = 0
        while True:
            end = data.find(b"\r\n\r\n", at) + 4
            if self._head_bytes + (end if end >= 4 else len(data)) > config.head_bytes_max:
                self._break(f"sent a head of more than {config.head_bytes_max} bytes", "engine_died")
                return
            if end < 4 and not _may_be_head(data[at : at + len(VERSION)], data):
                self._break("does not speak HTTP/1.1 (is its port right?)", "engine_died")
                return
            if end < 4:
                self._head_bytes += at
                self._collected = data[at:]
                return
            head = HeadParser.parse(data[at:end], config.headers_max)
            if head is None or head.status == 101 or head.status < 100:
                self._break("sent a malformed answer", "engine_died")
                return
            if head.status >= 200:
                self._pool.heads.remember(data[at:end], head)
                self._take(head, data[end:])
                return
            at = end

    def _known_head(self, data: bytes) -> bool:
        for known, head in self._pool.heads.known:
            end, digits = known.match(data)
            if end:
                self._take(head.again(int(digits or b"0")), data[end:])
                return True
        return False

    def _take(self, head: AnswerHead, rest: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        self.deadline = self.last_read + self._pool.idle_seconds
        framing = self._framing = head.framing
        self._keeps = head.keeps
        receiver.head(head)
        if self._receiver is not receiver:
            return
        if framing.done:
            self._complete(receiver, framing, rest, 0)
        elif rest:
            self._body(receiver, framing, rest)

    def _complete(self, receiver: Receiver, framing: Framing, data: bytes, end: int) -> None:
        """The last byte is here. Bytes behind it answer nothing: they are dropped, and the connection with them."""
        self._receiver = self._straight = None
        self._book(self._pool.sweep.now)
        extra = end != len(data)
        unsent = self._transport.get_write_buffer_size() > 0
        if extra or unsent or not self._keeps or not self.usable or not self._pool.take_back(self):
            self._drop()
            self._transport.close()
        receiver.body(data[:end] if extra else data, framing.payload, True)
        if self._pool.waiting:
            self._pool.serve_waiting()

    def _break(self, reason: str, why: str) -> None:
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.broken(reason, why)

    def _drop(self) -> None:
        self._closed = True
        self._out = b""
        self._straight = None
        if self._unbooked:
            self._book(self._pool.sweep.now)
        self._pool.forget(self)


def _may_be_head(begins: bytes, data: bytes) -> bool:
    """Can this still become a head? Who speaks something else (HTTP/2, TLS, SSH), or ends its lines with LF alone, is not waited for."""
    return VERSION.startswith(begins[: len(VERSION)]) and b"\n\n" not in data
