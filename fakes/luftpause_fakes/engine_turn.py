"""What happens to one turn at the fake engine, from its body to the last byte of its answer?"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from luftpause_fakes import engine_script
from luftpause_fakes.engine_directives import DirectiveError
from luftpause_fakes.engine_faults import take
from luftpause_fakes.engine_flavours import Refusal
from luftpause_fakes.engine_host import Feed
from luftpause_fakes.engine_model import EngineRequest, Finished, Refused, Token
from luftpause_fakes.engine_state import EngineState
from luftpause_fakes.engine_text import answer_segments, prompt_segments
from luftpause_fakes.engine_wire import DONE, Writer, event
from luftpause_fakes.http_server import hang_up

Json = dict[str, Any]


class Gone(Exception):  # noqa: N818 (it is the client's end, not an error)
    """The client has left."""


class Died(Exception):  # noqa: N818
    """A fault ordered the connection to break."""


class Failed(Exception):  # noqa: N818
    """A fault ordered an error."""


class Turn(Struct, frozen=True):
    """A turn that the engine can take."""

    request: EngineRequest
    writer: Writer
    stream: bool


def read_turn(state: EngineState, body: bytes) -> Turn | Refusal:
    """A chat completion's body, or why it can't be one."""
    flavour = state.flavour
    try:
        asked: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return flavour.bad_request(f"the body is not JSON: {error}")
    if not isinstance(asked, dict):
        return flavour.bad_request("the body must be a JSON object")
    problem = _problem(asked)  # pyright: ignore[reportUnknownArgumentType]
    if problem is not None:
        return flavour.bad_request(problem)
    model = str(asked.get("model") or state.options.model)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if flavour.checks_model and model != state.options.model:
        return flavour.not_found(model, [state.options.model])
    try:
        return _turn(state, asked)  # pyright: ignore[reportUnknownArgumentType]
    except DirectiveError as error:
        return flavour.bad_request(str(error))


def _problem(asked: Json) -> str | None:
    messages, tools = asked.get("messages"), asked.get("tools")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):  # pyright: ignore[reportUnknownVariableType]
        return "'messages' is required and must be a list of objects"
    if tools is not None and (not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools)):  # pyright: ignore[reportUnknownVariableType]
        return "'tools' must be a list of objects"
    if not isinstance(asked.get("stream", False), bool | None):
        return "'stream' must be true or false"
    if asked.get("stream_options") is not None and not asked.get("stream"):
        return "'stream_options' can only be set when streaming"
    return None


def _turn(state: EngineState, asked: Json) -> Turn | Refusal:
    options, flavour = state.options, state.flavour
    number = state.next_id()
    tools: list[Json] = asked.get("tools") or []
    prompt = prompt_segments(options.model, asked["messages"], tools)
    prompt_tokens = sum(segment.tokens for segment in prompt)
    if prompt_tokens >= options.context:
        return flavour.too_long(prompt_tokens, options.context)
    allowed = asked.get("max_completion_tokens") or asked.get("max_tokens")
    room = options.context - prompt_tokens
    most = min(int(allowed), room) if isinstance(allowed, int) and allowed > 0 else room
    found = engine_script.answer(
        engine_script.Question(
            messages=asked["messages"],
            tools=tools,
            tool_choice=asked.get("tool_choice") or "auto",
            response_schema=_schema(asked.get("response_format")),
            id_prefix=flavour.call_id_prefix,
            id_hex=flavour.call_id_hex,
            ids=state.faults.call_ids,
            salt=number,
        )
    ).cut(most)
    priority = asked.get("priority")
    request = EngineRequest(
        id=number,
        prompt=prompt,
        answer=answer_segments(prompt, found.message()),
        tokens_max=most,
        priority=priority if isinstance(priority, int) else 0,
    )
    stream_options: Json = asked.get("stream_options") or {}
    writer = Writer(
        flavour=flavour,
        id=f"chatcmpl-{number}",
        model=options.model,
        created=int(time.time()),
        answer=found,
        cache_report=options.cache_report,
        include_usage=bool(stream_options.get("include_usage")),
        usage_form=state.faults.usage,
    )
    return Turn(request, writer, bool(asked.get("stream")))


def _schema(response_format: Any) -> Json | None:
    if not isinstance(response_format, dict):
        return None
    asked: Json = response_format  # pyright: ignore[reportUnknownVariableType]
    match asked.get("type"):
        case "json_schema":
            wrapper: Json = asked.get("json_schema") or {}
            schema: Json = wrapper.get("schema") or {"type": "object"}
            return schema
        case "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}}
        case _:
            return None


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
            await (self._stream(send) if self._turn.stream else self._at_once(send))
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
                case Token(number=number):
                    await self._start(send, "text/event-stream; charset=utf-8")
                    upto = math.ceil(len(deltas) * number / request.answer_tokens)
                    parts = [writer.head()] if number == 1 else []
                    parts += [writer.part(delta, request.prompt_tokens, number) for delta in deltas[sent:upto]]
                    sent = upto
                    if parts:
                        await _send(send, b"".join(parts))
                case Finished():
                    self._state.seen.finished += 1
                    await _send(send, writer.end(output), more=False)
                case Refused(reason=reason):
                    await self._refused(send, self._state.flavour.queue_full(reason))

    async def _at_once(self, send: Send) -> None:
        await self._faults_at(0)
        async for output in self._outputs():
            match output:
                case Finished():
                    self._state.seen.finished += 1
                    await self._start(send, "application/json")
                    await _send(send, orjson.dumps(self._turn.writer.whole(output)), more=False)
                case Refused(reason=reason):
                    await self._refused(send, self._state.flavour.queue_full(reason))
                case Token():
                    pass

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
        if self._turn.stream:
            await self._start(send, "text/event-stream; charset=utf-8")
            await _send(send, event(self._state.flavour.stream_error(status, message)) + DONE, more=False)
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
            await _send(send, event(refusal.in_event()) + DONE, more=False)
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
