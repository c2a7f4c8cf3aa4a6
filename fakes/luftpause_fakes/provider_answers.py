"""What does the fake provider answer to a call that it takes, and what does it count of one?"""

from collections.abc import Iterator
from typing import Any, Literal, cast

import orjson
from msgspec import Struct

Json = dict[str, Any]
Api = Literal["chat", "messages"]

CHARACTERS_PER_TOKEN = 4
ANSWER_TOKENS_MAX = 1_024  # where the call names no most
CREATED = 1_780_000_000


class AskedError(ValueError):
    """The body can't be read; the message says what is wrong."""


class Turn(Struct, frozen=True):
    """A call to a model. `tokens_max`: the most that it may answer, which is what limits are charged with."""

    api: Api
    model: str
    prompt_tokens: int
    tokens_max: int
    stream: bool
    usage: bool  # tell it at the end of a stream


def read(body: bytes, api: Api) -> Turn:
    """Raises AskedError."""
    try:
        asked: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise AskedError(f"the body is no JSON: {error}") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):  # pyright: ignore[reportUnknownMemberType]
        raise AskedError("the body must be an object with a list of 'messages'")
    asked = cast("Json", asked)
    most = asked.get("max_completion_tokens") or asked.get("max_tokens") or ANSWER_TOKENS_MAX
    if not isinstance(most, int) or most < 1:
        raise AskedError(f"max_tokens must be a whole number above 0, not {most!r}")
    options: Any = asked.get("stream_options")
    usage = bool(cast("Json", options).get("include_usage")) if isinstance(options, dict) else False
    characters = sum(_characters(message) for message in asked["messages"]) + _characters(asked.get("system"))
    prompt = max(1, -(-characters // CHARACTERS_PER_TOKEN))
    return Turn(api, str(asked.get("model", "fake")), prompt, most, bool(asked.get("stream")), usage)


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(value.get(name)) for name in ("content", "text"))  # pyright: ignore[reportUnknownMemberType]
    return sum(map(_characters, value)) if isinstance(value, list) else 0  # pyright: ignore[reportUnknownArgumentType]


def whole(turn: Turn, number: int, tokens: int) -> Json:
    """The answer at once."""
    if turn.api == "messages":
        content = [{"type": "text", "text": _text(tokens)}]
        return _message(turn, number) | {"content": content, "stop_reason": "end_turn", "usage": _usage(turn, tokens)}
    message = {"role": "assistant", "content": _text(tokens)}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return _completion(turn, number, "chat.completion") | {"choices": [choice], "usage": _usage(turn, tokens)}


def parts(turn: Turn, number: int, tokens: int) -> Iterator[bytes]:
    """The answer as a stream: one part per token, and what stands before and after them."""
    return _message_parts(turn, number, tokens) if turn.api == "messages" else _chat_parts(turn, number, tokens)


def _chat_parts(turn: Turn, number: int, tokens: int) -> Iterator[bytes]:
    head = _completion(turn, number, "chat.completion.chunk")
    for at in range(tokens):
        delta = {"content": _word(at)} | ({"role": "assistant"} if at == 0 else {})
        yield event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if turn.usage:
        end += event(head | {"choices": [], "usage": _usage(turn, tokens)})
    yield end + b"data: [DONE]\n\n"


def _message_parts(turn: Turn, number: int, tokens: int) -> Iterator[bytes]:
    begun: Json = _message(turn, number) | {"content": [], "stop_reason": None, "usage": _usage(turn, 1)}
    head = named({"type": "message_start", "message": begun})
    head += named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for at in range(tokens):
        delta = {"type": "text_delta", "text": _word(at)}
        yield (head if at == 0 else b"") + named({"type": "content_block_delta", "index": 0, "delta": delta})
    end = named({"type": "content_block_stop", "index": 0})
    end += named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}})
    yield end + named({"type": "message_stop"})


def _completion(turn: Turn, number: int, kind: str) -> Json:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": CREATED, "model": turn.model}


def _message(turn: Turn, number: int) -> Json:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": turn.model, "stop_sequence": None}


def _usage(turn: Turn, tokens: int) -> Json:
    if turn.api == "messages":
        return {"input_tokens": turn.prompt_tokens, "output_tokens": tokens}
    return {"prompt_tokens": turn.prompt_tokens, "completion_tokens": tokens, "total_tokens": turn.prompt_tokens + tokens}


def _text(tokens: int) -> str:
    return "".join(map(_word, range(tokens)))


def _word(at: int) -> str:
    return f"w{at % 100:02d} "


def event(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def named(data: Json) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)
