"""How does an agent with its own loop ask one streamed turn, and what does it measure of it?"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import httpx
import msgspec
from msgspec import Struct, field

Json = dict[str, Any]
EVENT_BYTES_MAX: Final = 2**20
SAID_CHARS_MAX: Final = 200


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    delta: _Delta = field(default_factory=_Delta)


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _Error(Struct):
    message: str = ""


class _Refusal(Struct):
    """OpenAI and vLLM wrap what they say, Ollama says it in a text, SGLang does neither."""

    error: _Error | str = ""
    message: str = ""

    def said(self) -> str:
        inner = self.error if isinstance(self.error, str) else self.error.message
        return " ".join((inner or self.message).split())


class Turn(Struct):
    """What came back. `run` is the run id that luftpause answered with, empty elsewhere."""

    run: str = ""
    text: str = ""
    calls: dict[int, Json] = field(default_factory=dict[int, Json])
    first_token_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def message(self) -> Json:
        """The assistant's message, as the next turn sends it back."""
        message: Json = {"role": "assistant", "content": self.text or None}
        return {**message, "tool_calls": [self.calls[index] for index in sorted(self.calls)]} if self.calls else message


class TurnFailedError(Exception):
    """The turn gave no whole answer; the text is short, and the same for the same cause."""


async def ask(client: httpx.AsyncClient, body: Json, headers: Mapping[str, str]) -> Turn:
    """One `POST /chat/completions` with `stream: true`. Raises TurnFailedError."""
    began = time.monotonic()
    turn = Turn()
    try:
        async with client.stream("POST", "chat/completions", json=body, headers=headers) as answer:
            turn.run = answer.headers.get("x-luftpause-run-id", "")
            if not answer.is_success:
                raise TurnFailedError(f"HTTP {answer.status_code}{await _said(answer)}")
            async for data in _events(answer.aiter_bytes()):
                _read(turn, data, began)
    except httpx.HTTPError as error:
        raise TurnFailedError(type(error).__name__) from error
    return turn


async def _said(answer: httpx.Response) -> str:
    """What the error says; only of a refusal, since other errors may say something new each time."""
    if answer.is_server_error:
        return ""
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > EVENT_BYTES_MAX:
            return ""
    try:
        message = msgspec.json.decode(body, type=_Refusal).said()
    except msgspec.DecodeError:
        return ""
    return f": {message[:SAID_CHARS_MAX]}" if message else ""


def _read(turn: Turn, data: bytes, began: float) -> None:
    try:
        chunk = msgspec.json.decode(data, type=_Chunk)
    except msgspec.DecodeError as error:
        raise TurnFailedError("an event that is no chat completion chunk") from error
    if chunk.error is not None:
        raise TurnFailedError("an error within the stream")
    if chunk.usage is not None:
        details = chunk.usage.prompt_tokens_details
        turn.prompt_tokens = chunk.usage.prompt_tokens
        turn.completion_tokens = chunk.usage.completion_tokens
        turn.cached_tokens = (details.cached_tokens or 0) if details else 0
    for choice in chunk.choices[:1]:
        delta = choice.delta
        if turn.first_token_s is None and (delta.content or delta.reasoning_content or delta.tool_calls):
            turn.first_token_s = time.monotonic() - began
        turn.text += delta.content or ""
        _add_calls(turn.calls, delta.tool_calls or ())


def _add_calls(calls: dict[int, Json], deltas: Sequence[_Call]) -> None:
    for delta in deltas:
        call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.id or call["id"]
        if delta.function is not None:
            call["function"]["name"] += delta.function.name or ""
            call["function"]["arguments"] += delta.function.arguments or ""


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The payloads of `data:` lines up to `[DONE]`. Raises TurnFailedError when the stream ends before it."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > EVENT_BYTES_MAX:
            raise TurnFailedError(f"an event longer than {EVENT_BYTES_MAX} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                yield data
    raise TurnFailedError("the stream ended before [DONE]")
