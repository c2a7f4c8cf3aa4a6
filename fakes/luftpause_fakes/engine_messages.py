"""How does Anthropic's Messages API ask, and how is it answered?"""

from collections.abc import Iterator
from typing import Any

import orjson

from luftpause_fakes.engine_asked import Asked, BadRequestError, Json, Written, called, flag, function, listed, number
from luftpause_fakes.engine_model import Finished
from luftpause_fakes.engine_text import pieces, text_of

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def read_messages(asked: Json) -> Asked:
    """Raises BadRequestError."""
    given = listed(asked.get("messages"), "messages")
    if not given:
        raise BadRequestError("'messages' is required and must be a list of objects")
    system = text_of(asked.get("system"))
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    for message in given:
        messages += _translated(message)
    tools = [function(tool.get("name"), tool.get("input_schema"), tool.get("description")) for tool in listed(asked.get("tools"), "tools")]
    return Asked(
        messages=messages, tools=tools, tool_choice=_choice(asked.get("tool_choice")), tokens_max=number(asked, "max_tokens"),
        stream=flag(asked, "stream"), include_usage=True,
    )  # fmt: skip


def _translated(message: Json) -> Iterator[Json]:
    """Results of tools become messages of their own; what can't be read as text counts nothing."""
    content: Any = message.get("content")
    blocks: list[Json] = listed(content, "content") if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    texts = [block for block in blocks if block.get("type") == "text"]
    if message.get("role") == "assistant":
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        calls = [called(block.get("id"), block.get("name"), orjson.dumps(block.get("input") or {}).decode()) for block in uses]
        yield {"role": "assistant", "content": text_of(texts) or None, **({"tool_calls": calls} if calls else {})}
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text_of(block.get("content"))}
    if texts:
        yield {"role": message.get("role"), "content": text_of(texts)}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return "auto"
    named: Json = choice  # pyright: ignore[reportUnknownVariableType]
    if named.get("type") == "tool":
        return {"type": "function", "function": {"name": named.get("name")}}
    return {"any": "required", "none": "none"}.get(str(named.get("type")), "auto")


def event(name: str, data: Json) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **data}) + b"\n\n"


class MessageWriter(Written, frozen=True):
    """Writes an answer as a message with content blocks."""

    def deltas(self) -> list[bytes]:
        return list(self._events())

    def head(self) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0}
        return event("message_start", {"message": self._message([], None, usage)}) + event("ping", {})

    def part(self, delta: bytes, prompt_tokens: int, tokens: int) -> bytes:
        del prompt_tokens, tokens
        return delta

    def end(self, finished: Finished) -> bytes:
        delta = {"stop_reason": self._stop(), "stop_sequence": None}
        return event("message_delta", {"delta": delta, "usage": self._usage(finished)}) + event("message_stop", {})

    def whole(self, finished: Finished) -> Json:
        return self._message(self._blocks(), self._stop(), self._usage(finished))

    def failed(self, error: Json) -> bytes:
        inner: Json = error.get("error") or error
        return event("error", {"error": {"type": "api_error", "message": inner.get("message")}})

    def _events(self) -> Iterator[bytes]:
        for index, block in enumerate(self._blocks()):
            text = block["type"] == "text"
            opening: Json = {**block, **({"text": ""} if text else {"input": {}})}
            yield event("content_block_start", {"index": index, "content_block": opening})
            said = block["text"] if text else self.answer.calls[index - bool(self.answer.text)].arguments
            for piece in pieces(said):
                delta = {"type": "text_delta", "text": piece} if text else {"type": "input_json_delta", "partial_json": piece}
                yield event("content_block_delta", {"index": index, "delta": delta})
            yield event("content_block_stop", {"index": index})

    def _blocks(self) -> list[Json]:
        said: list[Json] = [{"type": "text", "text": self.answer.text}] if self.answer.text else []
        return said + [{"type": "tool_use", "id": call.id, "name": call.name, "input": _read(call.arguments)} for call in self.answer.calls]

    def _stop(self) -> str:
        return _STOPS.get(self.answer.finish, self.answer.finish)

    def _message(self, content: list[Json], stop: str | None, usage: Json) -> Json:
        return {
            "id": f"msg_{self.id}", "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    def _usage(self, finished: Finished) -> Json:
        cached = self.cached(finished)
        return {
            "input_tokens": finished.prompt_tokens - cached, "output_tokens": finished.answer_tokens,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
        }  # fmt: skip


def _read(arguments: str) -> Any:
    """A whole answer holds an object; what the model wrote badly is an empty one, as engines do."""
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
