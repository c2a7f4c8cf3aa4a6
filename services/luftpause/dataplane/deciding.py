"""How does `POST /v1/decide` go: to a classifier as it is, or with labels as one turn of a model?"""

from typing import TYPE_CHECKING, Final

from luftpause.dataplane.bodies import plain
from luftpause.dataplane.decide import Question, answer_of, chat_body, read_question
from luftpause.dataplane.exchange import Handler, Request
from luftpause.dataplane.formats import CHAT, CLASSIFY
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import RequestHead
from luftpause.dataplane.responses import CLOSE, refusal
from luftpause.dataplane.turn import Turn

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client
    from luftpause.dataplane.relay import Relay

ANSWER_BYTES_MAX: Final = 2**20
FRAMING: Final = (b"content-length:", b"connection:", b"transfer-encoding:")
OURS: Final = b"x-luftpause-"
TOO_LONG: Final = Rejection(502, "engine_failed", f"the engine's answer to one token has more than {ANSWER_BYTES_MAX} bytes")
BROKEN: Final = Rejection(502, "engine_failed", "the engine closed the connection in the middle of its answer")


def decide(relay: "Relay", conn: "Client", request: Request) -> None:
    question = read_question(plain(request.body))
    if isinstance(question, Rejection):
        conn.answer(refusal(question, more=conn.more, close=not conn.keeps))
    elif question is None:
        relay.take(Turn(relay, conn, request, CLASSIFY), request)
    else:
        Deciding(relay, conn, question).start(request)


class Deciding:
    """Stands between a turn and its client: the turn's client, and the client's handler. Keeps the answer until it is whole."""

    def __init__(self, relay: "Relay", conn: "Client", question: Question) -> None:
        self._relay = relay
        self._conn = conn
        self._question = question
        self._collected = bytearray()
        self.handler: Handler | None = None
        self.more = conn.more
        self.keeps = conn.keeps
        self.half_close_seconds = conn.half_close_seconds
        self.headed = False

    def start(self, request: Request) -> None:
        """As an interactive turn, whatever class the client's other turns have."""
        head = request.head
        named = head.named | {b"x-luftpause-class": b"interactive"}
        # To HTTP/1.0 a body goes bare.
        turned = RequestHead(head.method, CHAT.path.encode(), CHAT.path, head.headers, named, version="1.0", keep_alive=head.keep_alive)
        asked = Request(turned, chat_body(self._question), principal=request.principal)
        self._conn.handler = self
        self._relay.take(Turn(self._relay, self, asked, CHAT), asked)

    # ---- exchange.Client, for the turn

    def answer(self, data: bytes) -> None:
        """An error of luftpause's own."""
        self.handler = None
        self._conn.keeps = self.keeps
        self._conn.answer(data)

    def write_head(self, data: bytes) -> None:
        self.headed = True
        self._collected += data

    def let_go(self) -> None:
        self._conn.let_go()

    def write(self, data: bytes) -> None:
        self._collected += data
        if len(self._collected) > ANSWER_BYTES_MAX:
            self._leave()
            self._refuse(TOO_LONG)

    def finish(self) -> None:
        if self.handler is None:
            return
        self.handler = None
        head, _, body = bytes(self._collected).partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        kept = b"".join(line + b"\r\n" for line in lines if not line.lower().startswith(FRAMING))
        if status[9:10] == b"2":
            decided = answer_of(self._question, body)
            if isinstance(decided, Rejection):
                self._refuse(decided)
                return
            body = decided
        framing = b"content-length: %d\r\n%b\r\n" % (len(body), b"" if self._conn.keeps else CLOSE)
        self._conn.answer(b"%b\r\n%b%b%b" % (status, kept, framing, body))

    def break_off(self, *, reset: bool) -> None:
        self.handler = None
        self._refuse(BROKEN)

    def _refuse(self, rejection: Rejection) -> None:
        """With what the head that can't go on says of the turn."""
        head = bytes(self._collected).partition(b"\r\n\r\n")[0]
        ours = b"".join(line + b"\r\n" for line in head.split(b"\r\n") if line.startswith(OURS))
        self._conn.answer(refusal(rejection, more=self.more + ours, close=not self._conn.keeps))

    # ---- exchange.Handler, for the client

    def client_left(self) -> None:
        self._leave()

    def _leave(self) -> None:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.client_left()

    def pause(self) -> None:
        """Nothing is on its way to the client."""

    def resume(self) -> None:
        """Nothing was paused."""

    def last_sign(self) -> float:
        return self.handler.last_sign() if self.handler is not None else 0.0
