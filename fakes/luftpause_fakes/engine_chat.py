"""How do Chat Completions and Completions ask, and how are they answered?"""

import hashlib
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

from luftpause_fakes.engine_asked import Asked, BadRequestError, Json, Written, flag, listed, number, priority_of
from luftpause_fakes.engine_model import Finished
from luftpause_fakes.engine_text import pieces, text_of

DONE = b"data: [DONE]\n\n"
_WORD = re.compile(r"\w+")


def event(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def read_chat(asked: Json) -> Asked:
    """Raises BadRequestError."""
    messages = listed(asked.get("messages"), "messages")
    if not messages:
        raise BadRequestError("'messages' is required and must be a list of objects")
    wanted: Any = asked.get("top_logprobs")
    return Asked(
        messages=messages,
        tools=listed(asked.get("tools"), "tools"),
        tool_choice=asked.get("tool_choice") or "auto",
        schema=schema_of(asked.get("response_format")),
        tokens_max=number(asked, "max_completion_tokens", "max_tokens"),
        logprobs=(wanted if isinstance(wanted, int) else 0) if asked.get("logprobs") else None,
        **_common(asked),
    )


def read_completion(asked: Json) -> Asked:
    """Raises BadRequestError."""
    prompt: Any = asked.get("prompt")
    if isinstance(prompt, list):
        prompt = "\n".join(str(each) for each in prompt)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not isinstance(prompt, str) or not prompt:
        raise BadRequestError("'prompt' is required and must be a text")
    return Asked([{"role": "user", "content": prompt}], tokens_max=number(asked, "max_tokens") or 16, **_common(asked))


def _common(asked: Json) -> Json:
    stream = flag(asked, "stream")
    if asked.get("stream_options") is not None and not stream:
        raise BadRequestError("'stream_options' can only be set when streaming")
    options: Json = asked.get("stream_options") or {}
    return {
        "stream": stream,
        "include_usage": bool(options.get("include_usage")),
        "priority": priority_of(asked),
        "tokens_min": number(asked, "min_tokens"),
    }


def schema_of(response_format: Any) -> Json | None:
    if not isinstance(response_format, dict):
        return None
    asked: Json = response_format  # pyright: ignore[reportUnknownVariableType]
    match asked.get("type"):
        case "json_schema":
            wrapper: Json = asked.get("json_schema") or asked
            schema: Json = wrapper.get("schema") or {"type": "object"}
            return schema
        case "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}}
        case _:
            return None


class ChatWriter(Written, frozen=True):
    """Writes an answer as a chat completion."""

    def deltas(self) -> list[Json]:
        """What the stream says between role and finish, in the smallest steps."""
        return [*self._text_deltas(), *self._call_deltas()]

    def head(self) -> bytes:
        return self._chunk({"role": "assistant", "content": self.flavour.role_content})

    def part(self, delta: Json, prompt_tokens: int, tokens: int) -> bytes:
        usage = {"usage": counts(prompt_tokens, tokens)} if self.usage_form == "every" else {}
        return self._chunk(delta, usage=usage)

    def end(self, finished: Finished) -> bytes:
        """Finish chunk, usage chunk where it was asked for, [DONE]."""
        return self._chunk({}, finish=self.answer.finish) + self._usage_chunk(finished) + DONE

    def whole(self, finished: Finished) -> Json:
        choice: Json = {"index": 0, "message": self.answer.message(), "finish_reason": self.answer.finish, **self._extra()}
        if self.asked.logprobs is not None:
            choice["logprobs"] = {"content": [self._logprobs()], "refusal": None}
        usage = {} if self.usage_form == "none" else {"usage": usage_of(self, finished)}
        return {**self._frame("chat.completion"), "choices": [choice], **usage}

    def failed(self, error: Json) -> bytes:
        return event(error) + DONE

    def _text_deltas(self) -> Iterator[Json]:
        for piece in pieces(self.answer.text):
            yield {"content": piece}

    def _call_deltas(self) -> Iterator[Json]:
        for index, call in enumerate(self.answer.calls):
            function = {"name": call.name} if self.flavour.name == "vllm" else {"name": call.name, "arguments": ""}
            yield {"content": None, "tool_calls": [{"id": call.id, "type": "function", "index": index, "function": function}]}
            for piece in pieces(call.arguments):
                yield {"content": None, "tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def _usage_chunk(self, finished: Finished) -> bytes:
        if not self.asked.include_usage or self.usage_form == "none":
            return b""
        frame = {**self._frame("chat.completion.chunk"), "usage": usage_of(self, finished)}
        match self.usage_form:
            case "missing_choices":
                return event(frame)
            case "empty_delta":
                return event({**frame, "choices": [{"index": 0, "delta": {}}]})
            case _:
                return event({**frame, "choices": []})

    def _chunk(self, delta: Json, finish: str | None = None, usage: Json | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, **self._extra(), "finish_reason": finish}
        return event({**self._frame("chat.completion.chunk"), "choices": [choice], **(usage or {})})

    def _frame(self, kind: str) -> Json:
        fingerprint = {"system_fingerprint": self.flavour.fingerprint} if self.flavour.fingerprint else {}
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.model, **fingerprint}

    def _extra(self) -> Json:
        return self.flavour.choice_extra

    def _logprobs(self) -> Json:
        """Of the first token: the words of the conversation are what a model would say, with and without a space before them."""
        words = dict.fromkeys(word for message in self.asked.messages for word in _WORD.findall(text_of(message.get("content"))))
        scored = sorted(((_liking(word, self.asked.messages), word) for word in words), reverse=True)[: self.asked.logprobs or 0]
        total = sum(math.exp(liking) for liking, _ in scored) or 1.0
        top = [_token(word if place % 2 else " " + word, liking - math.log(total)) for place, (liking, word) in enumerate(scored)]
        first = top[0] if top else _token(self.answer.text[:4], -0.1)
        return {**first, "top_logprobs": top}


def _liking(word: str, messages: list[Json]) -> float:
    """The same conversation always likes the same words."""
    key = text_of(messages[-1].get("content")) + word
    return int.from_bytes(hashlib.blake2b(key.encode(errors="replace"), digest_size=4).digest(), "big") / 2**32 * 4


def _token(text: str, logprob: float) -> Json:
    return {"token": text, "logprob": round(logprob, 6), "bytes": list(text.encode())}


class CompletionWriter(Written, frozen=True):
    """Writes an answer as a completion: text only."""

    def deltas(self) -> list[str]:
        return pieces(self.answer.text)

    def head(self) -> bytes:
        return b""

    def part(self, delta: str, prompt_tokens: int, tokens: int) -> bytes:
        del prompt_tokens, tokens
        return event(self._frame(delta, None))

    def end(self, finished: Finished) -> bytes:
        usage = event({**self._frame("", None), "choices": [], "usage": usage_of(self, finished)}) if self.asked.include_usage else b""
        return event(self._frame("", self.answer.finish)) + usage + DONE

    def whole(self, finished: Finished) -> Json:
        return {**self._frame(self.answer.text, self.answer.finish), "usage": usage_of(self, finished)}

    def failed(self, error: Json) -> bytes:
        return event(error) + DONE

    def _frame(self, text: str, finish: str | None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return {"id": f"cmpl-{self.id}", "object": "text_completion", "created": self.created, "model": self.model, "choices": [choice]}


def counts(prompt: int, answer: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def usage_of(writer: Written, finished: Finished) -> Json:
    details = {"cached_tokens": finished.cached_tokens, **writer.flavour.usage_details} if writer.cache_report else None
    return {**counts(finished.prompt_tokens, finished.answer_tokens), "prompt_tokens_details": details}
