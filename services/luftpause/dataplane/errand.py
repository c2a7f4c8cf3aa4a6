"""How is a request answered that is no turn: by the first of some replicas that has an answer?

Nothing of it counts as a turn: no run, no place, no wait. A replica that can't be reached or says no is followed by the next one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.bodies import plain
from luftpause.dataplane.connection import Connection
from luftpause.dataplane.outgoing import engine_request
from luftpause.dataplane.passing import Passing
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CLOSE, refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.dataplane.turns import Replica

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client, Request
    from luftpause.dataplane.relay import Relay
    from luftpause.dataplane.upstream import Connecting

HEAD_SECONDS_MAX: Final = 30.0  # these answers take no generation
LOCATE_SECONDS_MAX: Final = 1.0
KEPT_BYTES_MAX: Final = 65_536  # of an answer that says no, while others are asked

NOT_KNOWN: Final = Rejection(404, "response_not_found", "no response of this caller is known by that id")
NOT_SURE: Final = Rejection(503, "no_scheduler", "the scheduler, which knows whose response it is, can't be asked now", retry_after_s=1)
NOT_ANSWERED: Final = Rejection(502, "engine_failed", "no replica answered")


class No(Struct, frozen=True):
    """A replica's answer that says no, whole."""

    head: AnswerHead
    body: bytes
    replica: str


class Errand:
    """A `connection.Receiver` and an `exchange.Handler`. `goes_on`: with this status the next replica is asked."""

    __slots__ = (
        "_body", "_candidates", "_conn", "_failure", "_goes_on", "_head", "_headers", "_kept", "_method", "_no", "_passing",
        "_query", "_relay", "_replica", "_target", "_version", "deadline", "upstream",
    )  # fmt: skip

    straight = None

    def __init__(self, relay: "Relay", conn: "Client", request: "Request", path: bytes, goes_on: Callable[[int], bool]) -> None:
        self._relay = relay
        self._conn = conn
        self._goes_on = goes_on
        self._method = request.head.method.encode()
        _, mark, query = request.head.target.partition(b"?")
        self._target = path + mark + query
        self._headers = request.head.forwarded(relay.forwarded)
        self._body = plain(request.body)
        self._version = request.head.version
        self._candidates: list[Replica] = []
        self._replica = ""
        self._head: AnswerHead | None = None
        self._passing: Passing | None = None
        self._kept = b""  # of the body of a no
        self._no: No | None = None
        self._failure = NOT_ANSWERED
        self._query = ""  # to the scheduler
        self.deadline = NEVER
        self.upstream: Connection | Connecting | None = None
        conn.handler = self
        relay.enter(self)
        relay.sweep.watch(self)

    def ask(self, candidates: Sequence[Replica]) -> None:
        """Of each in turn."""
        self._candidates = list(candidates)
        self._next()

    def locate(self, response: str, everybody: Sequence[Replica], principal: str = "") -> None:
        """Ask the replica that stores a response; `everybody` if nobody knows it, or nobody if it may be another principal's."""
        if principal:
            everybody, self._failure = (), NOT_KNOWN if self._relay.scheduler.connected else NOT_SURE
        self._candidates = list(everybody)
        self.deadline = self._relay.sweep.now + LOCATE_SECONDS_MAX
        self._query = "asked"
        query = self._relay.scheduler.locate(response, principal, self._located)
        if self._query:
            self._query = query

    def _located(self, name: str) -> None:
        self._query = ""
        replica = self._relay.scheduler.replicas.get(name)
        if replica is not None:
            self._candidates = [replica]
        self._next()

    def _next(self) -> None:
        self._head = None
        self._kept = b""
        self.upstream = None
        self.deadline = NEVER
        if not self._candidates:
            self._give_up()
            return
        replica = self._candidates.pop(0)
        self._replica = replica.name
        self.deadline = self._relay.sweep.now + HEAD_SECONDS_MAX
        pool = self._relay.upstreams.pool(replica)
        origin = pool.origin
        target = origin.at(self._target)
        pool.send(
            engine_request(target, origin.host_header, self._headers, origin.key_line(replica.api_key), self._body, self._method), self
        )

    def _give_up(self) -> None:
        no = self._no
        if no is None:
            self._over()
            self._conn.answer(refusal(self._failure, more=self._conn.more, close=not self._conn.keeps))
            return
        self._over()
        self._replica = no.replica
        head = self._passed_head(no.head, b"content-length: %d\r\n" % len(no.body))
        self._conn.answer(head + no.body)

    def _passed_head(self, head: AnswerHead, framing: bytes) -> bytes:
        close = b"" if self._conn.keeps else CLOSE
        return b"%bx-luftpause-replica: %b\r\n%b%b%b\r\n" % (head.lines, self._replica.encode(), self._conn.more, framing, close)

    # ---- Receiver

    def sent(self) -> None:
        """Only turns are reported."""

    def unreachable(self, reason: str) -> None:
        self._relay.scheduler.suspect(self._replica, reason)
        self._failed(reason, 502, "engine_unreachable")

    def broken(self, reason: str, why: str) -> None:
        if self._passing is not None:
            reset = self._passing.until_close
            self._over()
            self._conn.break_off(reset=reset)
        else:
            self._failed(reason, 504 if why.endswith("_timeout") else 502, "engine_failed")

    def _failed(self, reason: str, status: int, code: str) -> None:
        self._failure = Rejection(status, code, f"engine {self._replica}: {reason}")
        self._next()

    def head(self, head: AnswerHead) -> None:
        self._head = head
        if self._goes_on(head.status):
            return
        self.deadline = NEVER
        passing = self._passing = Passing(head, self._version, None)
        if passing.until_close:
            self._conn.keeps = False
        self._conn.write_head(self._passed_head(head, passing.framing))

    def body(self, raw: bytes, payload: bytes, done: bool) -> None:
        if self._passing is not None:
            emit = self._passing.emit
            self._conn.write(raw if emit is None else emit(raw, payload, done))
            if done:
                self._over()
                self._conn.finish()
            return
        self._kept += payload
        if len(self._kept) > KEPT_BYTES_MAX and not done:
            self._abort()
            self._failed(f"answered no with more than {KEPT_BYTES_MAX} bytes", 502, "engine_failed")
        elif done:
            if self._head is not None and (self._no is None or self._no.head.status != 404):
                self._no = No(self._head, self._kept, self._replica)
            self._next()

    # ---- Handler

    def client_left(self) -> None:
        self._over()
        self._abort()

    def pause(self) -> None:
        if self.upstream is not None:
            self.upstream.pause()

    def resume(self) -> None:
        if self.upstream is not None:
            self.upstream.resume()

    def last_sign(self) -> float:
        return self.upstream.last_read if self.upstream is not None else 0.0

    # ---- ends

    def expire(self, now: float) -> None:
        self.deadline = NEVER
        if self._query:
            self._relay.scheduler.unseek(self._query)
            self._query = ""
            self._next()
        else:
            self._abort()
            self._failed(f"did not answer within {HEAD_SECONDS_MAX:g} s", 504, "engine_failed")

    def stop_waiting(self, rejection: Rejection) -> None:
        """It waits for no place."""

    def kill(self, rejection: Rejection) -> None:
        """The dataplane ends now."""
        passing = self._passing
        self._conn.keeps = False
        self._over()
        self._abort()
        if passing is not None:
            self._conn.break_off(reset=passing.until_close)
        else:
            self._conn.answer(refusal(rejection, more=self._conn.more, close=True))

    def _over(self) -> None:
        if self._query:
            self._relay.scheduler.unseek(self._query)
            self._query = ""
        self._relay.sweep.forget(self)
        self._relay.leave(self)

    def _abort(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abort()
