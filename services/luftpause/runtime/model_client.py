"""How does a turn go through the dataplane, and what does each way of failing mean for the run?"""

import asyncio
import datetime
import json
import math
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import quote

import httpx
from msgspec.structs import replace

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.logs import Log
from luftpause.runtime.core.text import excerpt
from luftpause.runtime.decisions import decision_of
from luftpause.runtime.model_stream import EVENT_BYTES_MAX, AnswerBuilder, EventSplitter, StreamError
from luftpause.runtime.ports import Decision, Json, ModelAnswer, ModelTurn, TurnError

RETRY_SECONDS: Final = 1.0
SHORT_SECONDS: Final = 10.0  # for requests that ask no engine
JOIN_SECONDS: Final = 1.0
ERROR_BYTES_MAX: Final = 65_536
COMPACT: Final = "x-luftpause-compact"
UNKNOWN_FIELD: Final = frozenset({400, 422})  # what engines say of a field that they don't know
USAGE_FIELD: Final = b"stream_options"
MODELS_KEPT_MAX: Final = 1_000

_RETRYABLE: Final = frozenset({408, 425, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 529})


class UsageRefusedError(Exception):
    """The engine takes no `stream_options`; nothing was made."""


class DataplaneClient:
    """The `ModelClient` of ports.py over HTTP. An async context manager. `token`: what the dataplane is shown; empty: nothing."""

    def __init__(self, config: RuntimeConfig, transport: httpx.AsyncBaseTransport | None = None, *, token: str = "") -> None:
        self._url = config.dataplane.rstrip("/").removesuffix("/v1")
        self._turn_seconds_max = config.turn_seconds_max
        self._answer_chars_max = config.answer_chars_max
        self._without_usage: set[str] = set()  # models whose engines refuse to be asked for it
        self._log = Log("runtime.model")
        self._http = httpx.AsyncClient(
            transport=transport,
            headers={"authorization": f"Bearer {token}"} if token else None,
            trust_env=False,  # proxies of the environment are not for local services
            timeout=httpx.Timeout(None, connect=SHORT_SECONDS),  # asyncio.timeout bounds the whole turn
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def ask(self, turn: ModelTurn) -> ModelAnswer:
        try:
            async with asyncio.timeout(self._turn_seconds_max):
                return await self._ask(turn)
        except TimeoutError:
            message = f"the turn had no answer within {self._turn_seconds_max:g} s (runtime.turn_seconds_max)"
            raise TurnError(message, retry_after_s=None) from None
        except httpx.HTTPError as error:
            raise TurnError(self._unreachable(error), retry_after_s=RETRY_SECONDS) from error

    async def end_run(self, run: str) -> None:
        try:
            answer = await self._http.delete(f"{self._url}/v1/runs/{quote(run, safe='')}", timeout=SHORT_SECONDS)
        except httpx.HTTPError as error:
            self._log.debug("the dataplane was not told that a run ended", run=run, error=_describe(error))
        else:
            if answer.status_code >= 400:
                self._log.debug("the dataplane did not take the end of a run", run=run, status=answer.status_code)

    async def run_of_call(self, tool_call_id: str) -> str:
        try:
            asked = {"tool_call_id": tool_call_id}
            answer = await self._http.get(f"{self._url}/v1/runs", params=asked, timeout=JOIN_SECONDS)
            run: object = answer.json().get("run", "") if answer.status_code == 200 else ""
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            self._log.debug("the dataplane did not say whose tool call it was", error=_describe(error))
            return ""
        return run if isinstance(run, str) else ""

    async def models(self) -> tuple[str, ...]:
        return await self._served("generative")

    async def classifiers(self) -> tuple[str, ...]:
        return await self._served("classifier")

    async def decide(self, model: str, text: str, labels: Sequence[str] | None, caller: str) -> Decision:
        asked: Json = {"model": model, "input": text}
        if labels is not None:
            asked["labels"] = list(labels)
        headers = [(b"content-type", b"application/json"), *_caller_header(caller)]
        try:
            async with asyncio.timeout(self._turn_seconds_max):
                answer = await self._http.post(f"{self._url}/v1/decide", headers=headers, content=json.dumps(asked).encode())
        except TimeoutError:
            message = f"the decision took longer than {self._turn_seconds_max:g} s (runtime.turn_seconds_max)"
            raise TurnError(message, retry_after_s=None) from None
        except httpx.HTTPError as error:
            raise TurnError(self._unreachable(error), retry_after_s=RETRY_SECONDS) from error
        if answer.status_code != 200:
            raise _refusal(answer.status_code, answer.headers, answer.content)
        return decision_of(answer.content, model)

    async def _served(self, kind: str) -> tuple[str, ...]:
        try:
            answer = await self._http.get(f"{self._url}/v1/models", timeout=SHORT_SECONDS)
        except httpx.HTTPError as error:
            raise TurnError(self._unreachable(error), retry_after_s=RETRY_SECONDS) from error
        if answer.status_code != 200:
            raise _refusal(answer.status_code, answer.headers, answer.content)
        try:
            listed: object = answer.json()["data"]
            entries = [cast("Json", entry) for entry in cast("list[object]", listed) if isinstance(entry, dict)]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TurnError(f"{self._url}/v1/models did not answer with a list of models", retry_after_s=None) from None
        return tuple(str(entry["id"]) for entry in entries if entry.get("id") and entry.get("kind", "generative") == kind)

    async def _ask(self, turn: ModelTurn) -> ModelAnswer:
        if turn.model not in self._without_usage:
            try:
                return await self._asked(turn, usage=True)
            except UsageRefusedError:
                if len(self._without_usage) < MODELS_KEPT_MAX:
                    self._without_usage.add(turn.model)
                self._log.warning("its engine refuses stream_options; tokens of its turns are not counted", model=turn.model)
        return await self._asked(turn, usage=False)

    async def _asked(self, turn: ModelTurn, *, usage: bool) -> ModelAnswer:
        body = _body(turn, usage=usage)
        request = self._http.build_request("POST", f"{self._url}/v1/chat/completions", headers=_headers(turn), content=body)
        answer = await self._http.send(request, stream=True)
        try:
            if answer.status_code != 200:
                start = await _start_of(answer)
                if usage and answer.status_code in UNKNOWN_FIELD and USAGE_FIELD in start:
                    raise UsageRefusedError
                raise _refusal(answer.status_code, answer.headers, start)
            said = await _read(answer, AnswerBuilder(self._answer_chars_max))
            return replace(said, compact=True) if answer.headers.get(COMPACT) == "1" else said
        except StreamError as error:
            raise _said(error) from None
        finally:
            await answer.aclose()

    def _unreachable(self, error: httpx.HTTPError) -> str:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return f"the dataplane at {self._url} can't be reached: {_describe(error)}"
        return f"the connection to the dataplane at {self._url} was lost: {_describe(error)}"


async def _read(answer: httpx.Response, builder: AnswerBuilder) -> ModelAnswer:
    """The answer of a 200. Raises StreamError, TurnError, httpx.HTTPError; a partial answer is dropped whole."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    match kind:
        case "text/event-stream":
            await _read_events(answer, builder)
        case "application/json":  # an engine that does not stream
            builder.event(await _start_of(answer, EVENT_BYTES_MAX))
            builder.done = True
        case _:
            start = excerpt(await _start_of(answer))
            raise TurnError(f"expected an event stream, got {kind or 'no content type'}: {start}", retry_after_s=None)
    if not builder.complete:
        raise TurnError("the answer was cut off before its end", retry_after_s=RETRY_SECONDS)
    return builder.answer()


async def _read_events(answer: httpx.Response, builder: AnswerBuilder) -> None:
    splitter = EventSplitter()
    try:
        async for chunk in answer.aiter_bytes():
            for data in splitter.feed(chunk):
                builder.event(data)
        for data in splitter.end():
            builder.event(data)
    except (httpx.HTTPError, StreamError):
        if not builder.complete:
            raise


def _headers(turn: ModelTurn) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream"),
        (b"x-luftpause-run-id", turn.run.encode()),
        (b"x-luftpause-class", turn.service_class.value.encode()),
    ]
    headers += _caller_header(turn.caller)
    if turn.parent:
        headers.append((b"x-luftpause-parent-run-id", turn.parent.encode("ascii", "ignore")))
    if turn.traceparent:
        headers.append((b"traceparent", turn.traceparent.encode("ascii", "ignore")))
    return headers


def _caller_header(caller: str) -> list[tuple[bytes, bytes]]:
    caller = "".join(character for character in caller if character.isprintable()).strip()
    return [(b"x-luftpause-caller", caller.encode("utf-8", "replace"))] if caller else []


def _body(turn: ModelTurn, *, usage: bool) -> bytes:
    body: dict[str, Any] = {"model": turn.model, "messages": list(turn.messages), "stream": True}
    if usage:
        body["stream_options"] = {"include_usage": True}
    if turn.tools:
        body["tools"] = list(turn.tools)
    if turn.max_tokens > 0:
        body["max_tokens"] = turn.max_tokens
    return json.dumps(body, separators=(",", ":")).encode()  # ASCII: a lone surrogate can't break it


async def _start_of(answer: httpx.Response, bytes_max: int = ERROR_BYTES_MAX) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) >= bytes_max:
            break
    return bytes(body[:bytes_max])


def _refusal(status: int, headers: Mapping[str, str], body: bytes) -> TurnError:
    message = _error_message(body)
    if status == 429:
        return TurnError(f"rate limit (429): {message}", retry_after_s=retry_after(headers), limited=True)
    if status in _RETRYABLE:
        return TurnError(f"the turn failed with status {status}: {message}", retry_after_s=retry_after(headers))
    return TurnError(f"the turn was refused with status {status}: {message}", retry_after_s=None)


def _said(error: StreamError) -> TurnError:
    if error.status == 429:
        return TurnError(f"rate limit (429): {error.message}", retry_after_s=RETRY_SECONDS, limited=True)
    final = 400 <= error.status < 500 and error.status not in _RETRYABLE
    status = f" (code {error.status})" if error.status else ""
    return TurnError(f"the engine failed{status}: {error.message}", retry_after_s=None if final else RETRY_SECONDS)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait: `retry-after-ms`, else `Retry-After` in seconds or as a date; 1 where that is missing or senseless."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if text:
            seconds = _number(text) * unit if _number(text) else _until(text)
            if seconds > 0:
                return seconds
    return RETRY_SECONDS


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def _until(text: str) -> float:
    try:
        date = parsedate_to_datetime(text).astimezone(datetime.UTC)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return (date - datetime.datetime.now(datetime.UTC)).total_seconds()


def _error_message(body: bytes) -> str:
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return excerpt(body)
    if isinstance(parsed, dict):
        error = cast("Json", parsed).get("error", cast("Json", parsed))
        if isinstance(error, dict):
            error = cast("Json", error).get("message") or cast("Json", error).get("detail")
        if isinstance(error, str) and error:
            return error
    return excerpt(body)


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
