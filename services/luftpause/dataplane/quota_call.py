"""How does one question about a lease live: from its complete request to its answer, however it ends?"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from luftpause.dataplane.quota_questions import Refusal, Reply
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import refusal, whole
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Request
    from luftpause.dataplane.http import Conn

LEAVING: Final = Rejection(503, "stopping", "this dataplane stops; ask again, another one may serve", retry_after_s=1)
FAILED: Final = Rejection(500, "internal", "the dataplane failed to answer; its log says why")

Endpoint = Callable[["QuotaCall"], Awaitable[Reply]]

log = Log("dataplane")


class QuotaCall:
    """
    An `exchange.Handler`; `start` begins. Most questions are answered in the first step of their task, with one write.

    One that `asks` for quota has asked for nothing if its client leaves; it is among the `waiting` if it may wait.
    """

    __slots__ = ("_asks", "_conn", "_left", "_stopped", "_task", "_waiting", "body", "head", "principal", "target")

    def __init__(self, conn: "Conn", request: "Request", target: str, waiting: "set[QuotaCall]") -> None:
        self.target = target
        self.head = request.head
        self.body = request.body
        self.principal = request.principal
        self._conn = conn
        self._waiting = waiting
        self._asks = self._left = self._stopped = False

    def start(self, endpoint: Endpoint) -> None:
        conn = self._conn
        conn.handler = self
        self._task = task = conn.loop.create_task(self._run(endpoint))
        conn.server_state.tasks.add(task)
        task.add_done_callback(conn.server_state.tasks.discard)

    def asks(self, *, waits: bool) -> None:
        """From now on an answer is of use to this client only. To be called by the endpoint."""
        if self._left:
            raise asyncio.CancelledError
        self._asks = True
        if waits:
            self._waiting.add(self)

    def stop(self) -> None:
        """The dataplane stops, and this one waits."""
        self._stopped = True
        self._task.cancel()

    # ---- Handler

    def client_left(self) -> None:
        self._left = True
        if self._asks:
            self._task.cancel()

    def pause(self) -> None:
        pass  # an answer is one write

    def resume(self) -> None:
        pass

    def last_sign(self) -> float:
        return self._conn.loop.time()

    # ---- the answer

    async def _run(self, endpoint: Endpoint) -> None:
        try:
            self._say(await endpoint(self))
        except Refusal as refused:
            self._refuse(refused.rejection, refused.more)
        except LuftpauseError as error:
            self._refuse(Rejection(error.status, error.code, error.message, error.retry_after_s or 0))
        except asyncio.CancelledError:
            if not self._stopped and not self._left:
                raise
            self._refuse(LEAVING)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            log.error("request_failed", path=self.head.path, error=repr(error))  # noqa: TRY400 - one line per event
            self._refuse(FAILED)
        finally:
            self._waiting.discard(self)

    def _say(self, reply: Reply) -> None:
        if not self._left:
            conn = self._conn
            conn.answer(whole(reply.status, reply.body, more=reply.more + conn.more, close=not conn.keeps))

    def _refuse(self, rejection: Rejection, more: bytes = b"") -> None:
        if not self._left:
            conn = self._conn
            conn.answer(refusal(rejection, more=more + conn.more, close=not conn.keeps))
