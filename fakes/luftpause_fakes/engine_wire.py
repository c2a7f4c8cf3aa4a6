"""How does an answer look on the wire, whole and in chunks?"""

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Struct

from luftpause_fakes.engine_flavours import Flavour
from luftpause_fakes.engine_model import Finished
from luftpause_fakes.engine_script import Answer
from luftpause_fakes.engine_text import pieces

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"


def event(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


class Writer(Struct, frozen=True):
    """Writes one answer. `usage_form` is the fault of that name."""

    flavour: Flavour
    id: str
    model: str
    created: int
    answer: Answer
    cache_report: bool
    include_usage: bool
    usage_form: str = "after"

    def deltas(self) -> list[Json]:
        """What the stream says between role and finish, in the smallest steps."""
        return [*self._text_deltas(), *self._call_deltas()]

    def head(self) -> bytes:
        return self._chunk({"role": "assistant", "content": self.flavour.role_content})

    def part(self, delta: Json, prompt_tokens: int, tokens: int) -> bytes:
        usage = {"usage": self._counts(prompt_tokens, tokens)} if self.usage_form == "every" else {}
        return self._chunk(delta, usage=usage)

    def end(self, finished: Finished) -> bytes:
        """Finish chunk, usage chunk where it was asked for, [DONE]."""
        return self._chunk({}, finish=self.answer.finish) + self._usage_chunk(finished) + DONE

    def whole(self, finished: Finished) -> Json:
        choice: Json = {"index": 0, "message": self.answer.message(), "finish_reason": self.answer.finish, **self._extra()}
        usage = {} if self.usage_form == "none" else {"usage": self._usage(finished)}
        return {**self._frame("chat.completion"), "choices": [choice], **usage}

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
        if not self.include_usage or self.usage_form == "none":
            return b""
        frame = {**self._frame("chat.completion.chunk"), "usage": self._usage(finished)}
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
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **fingerprint}

    def _extra(self) -> Json:
        return self.flavour.choice_extra

    def _counts(self, prompt: int, answer: int) -> Json:
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    def _usage(self, finished: Finished) -> Json:
        details = {"cached_tokens": finished.cached_tokens, **self.flavour.usage_details} if self.cache_report else None
        return {**self._counts(finished.prompt_tokens, finished.answer_tokens), "prompt_tokens_details": details}
