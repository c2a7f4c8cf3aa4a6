"""What happens to one turn at the fake engine, from its place in the queue to the last byte of its answer?"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator

import orjson
from starlette.types import Receive, Scope, Send

from luftpause_fakes.engine_faults import take
from luftpause_fakes.engine_flavours import Refusal
from luftpause_fakes.engine_host import Feed
from luftpause_fakes.engine_model import Finished, Refused, Token
from luftpause_fakes.engine_read import Turn
from luftpause_fakes.engine_state import EngineState
from luftpause_fakes.http_server import hang_up


class Gone(Exception):  # noqa: N818 (it is the client's end, not an error)
    """The client has left."""


class Died(Exception):  # noqa: N818
    """A fault ordered the connection to break."""


class Failed(Exception):  # noqa: N818
    """A fault ordered an error."""


class TurnResponse:
    """The ASGI answer to a turn: sends tokens as the model makes them; a client that leaves frees the engine at once."""

    def __init__(self, state: EngineState, turn: Turn, feed: Feed) -> None:
        self._state = state
        self._turn = turn
        self._feed = feed
        faults = state.faults
        self._die = faults.die_after_tokens if take(faults, "die") else None
        self._stall = faults.stall_after_tokens if take(faults, "stall") else None
        self._error = faults.error_after_tokens if take(faults, "error") else None
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(self._watch(receive))
        seen = self._state.seen
        try:
            await (self._stream(send) if self._turn.asked.stream else self._at_once(send))
        except Failed:
            seen.failed += 1
            await self._fail(send)
        except Died:
            seen.failed += 1
            hang_up(scope)
        except Gone:
            seen.aborted += 1
        except BaseException:
            seen.aborted += 1
            raise
        finally:
            self._state.host.cancel(self._turn.request.id)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._state.host.cancel(self._turn.request.id)
        self._feed.gone()

    async def _stream(self, send: Send) -> None:
        writer, request = self._turn.writer, self._turn.request
        deltas, sent = writer.deltas(), 0
        await self._faults_at(0)
        if not self._state.flavour.head_waits:
            await self._start(send, "text/event-stream; charset=utf-8")
        async for output in self._outputs():
            match output:
                case Token(number=number) if self._said_now(number):
                    await self._start(send, "text/event-stream; charset=utf-8")
                    upto = math.ceil(len(deltas) * number / request.answer_tokens)
                    parts: list[bytes] = [writer.head()] if number == 1 else []
                    parts += [writer.part(delta, request.prompt_tokens, number) for delta in deltas[sent:upto]]
                    sent = upto
                    if parts:
                        await _send(send, b"".join(parts))
                case Token():
                    pass
                case Finished():
                    self._finished(output)
                    await _send(send, writer.end(output), more=False)
                case Refused(reason=reason):
                    await self._refused(send, self._state.flavour.queue_full(reason))

    def _said_now(self, number: int) -> bool:
        """SGLang and vLLM can send several tokens' chunks together (`--stream-interval`); the first and the last are never late."""
        return number in {1, self._turn.request.answer_tokens} or number % self._state.options.stream_interval == 0

    async def _at_once(self, send: Send) -> None:
        await self._faults_at(0)
        async for output in self._outputs():
            match output:
                case Finished():
                    self._finished(output)
                    await self._start(send, "application/json")
                    await _send(send, orjson.dumps(self._turn.writer.whole(output)), more=False)
                case Refused(reason=reason):
                    await self._refused(send, self._state.flavour.queue_full(reason))
                case Token():
                    pass

    def _finished(self, finished: Finished) -> None:
        self._state.seen.finished += 1
        if self._turn.kept is not None:
            self._state.keep(self._turn.kept, self._turn.writer.whole(finished))

    async def _outputs(self) -> AsyncGenerator[Token | Finished | Refused]:
        """What the model does, until the end. Raises Gone, Died, Failed."""
        while True:
            output = await self._feed.next()
            match output:
                case None:
                    raise Gone
                case Finished() | Refused():
                    yield output
                    return
                case Token():
                    yield output
                    await self._faults_at(output.number)
                case _:
                    pass

    async def _faults_at(self, tokens: int) -> None:
        if self._stall is not None and tokens >= self._stall:
            self._stall = None
            await self._sleep(self._state.faults.stall_seconds)
        if self._die is not None and tokens >= self._die:
            raise Died
        if self._error is not None and tokens >= self._error:
            raise Failed

    async def _fail(self, send: Send) -> None:
        status, message = self._state.faults.error_status, "the fake engine was told to fail"
        if self._turn.asked.stream:
            await self._start(send, "text/event-stream; charset=utf-8")
            await _send(send, self._turn.writer.failed(self._state.flavour.stream_error(status, message)), more=False)
        else:
            await self._start(send, "application/json", status)
            await _send(send, orjson.dumps(self._state.flavour.error(status, message, "InternalServerError")), more=False)

    async def _sleep(self, seconds: float) -> None:
        """Silence, unless the client leaves."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._feed.left.is_set():
                raise Gone
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._feed.left.wait(), left)

    async def _refused(self, send: Send, refusal: Refusal) -> None:
        self._state.seen.refused += 1
        if self._started:
            await _send(send, self._turn.writer.failed(refusal.in_event()), more=False)
        else:
            await self._start(send, "application/json", refusal.status)
            await _send(send, orjson.dumps(refusal.body), more=False)

    async def _start(self, send: Send, content_type: str, status: int = 200) -> None:
        if self._started:
            return
        self._started = True
        server = self._state.flavour.server
        headers = [(b"content-type", content_type.encode()), *([(b"server", server.encode())] if server else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
