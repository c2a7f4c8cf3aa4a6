"""What does a Chat Completions or (legacy) Completions answer say about its turn?"""

import re
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta, Struct

from luftpause.dataplane.observe import COUNT_MAX, CUT, Json, Observed, as_count, as_object, as_objects, as_text, error_text, parse
from luftpause.dataplane.turns import Usage

# In JSON text a quote inside a string is escaped, so these match only where a key with that value stands.
TELLING: Final = re.compile(
    rb'"(?:finish_reason"\s*:\s*"|usage"\s*:\s*\{|tool_calls"\s*:\s*[\[{]|function_call"\s*:\s*\{|error"\s*:\s*[{"])'
)
USAGE: Final = b'"usage"'
CACHED: Final = ("cached_tokens", "prompt_cache_hit_tokens")  # Moonshot's and DeepSeek's names
TEXT_KEYS: Final = ("content", "reasoning_content", "reasoning", "reasoning_details", "refusal", "audio", "images")
CALLS: Final = frozenset({"tool_calls", "function_call"})


Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]


class WholeFunction(Struct, gc=False):
    name: str | None = None


class WholeCall(Struct, gc=False):
    id: str | None = None
    function: WholeFunction | None = None
    custom: None = None


class WholeMessage(Struct, gc=False):
    tool_calls: list[WholeCall] | None = None
    function_call: None = None


class WholeChoice(Struct, gc=False):
    message: WholeMessage
    finish_reason: str | None = None
    usage: None = None


class WholeDetails(Struct, gc=False):
    cached_tokens: Count | None = None


class WholeUsage(Struct, gc=False):
    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: WholeDetails | None = None
    cached_tokens: Count | None = None
    prompt_cache_hit_tokens: Count | None = None


class Whole(Struct, gc=False):
    """A whole answer as nearly all engines give it: decoding this costs a third of looking at every field."""

    choices: list[WholeChoice]
    usage: WholeUsage | None = None
    x_groq: None = None
    error: None = None


_whole: Final = msgspec.json.Decoder(Whole)


class ChatSeen(Observed):
    __slots__ = ()
    telling = TELLING

    @property
    def paused(self) -> bool:
        """Engines finish tool calls with `stop`, `eos` and words of their own, or say nothing; a cut answer has not ended in any."""
        return self.finish_reason in CALLS or (self.calls and self.finish_reason.lower() not in CUT)

    def take_whole(self, text: bytes) -> None:
        try:
            found = _whole.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.take_text(text)
            return
        if (usage := found.usage) is not None:
            details = usage.prompt_tokens_details
            cached = None if details is None else details.cached_tokens
            if cached is None:
                cached = usage.prompt_cache_hit_tokens if usage.cached_tokens is None else usage.cached_tokens
            self.usage = Usage(usage.prompt_tokens, usage.completion_tokens, cached)
        for choice in found.choices:
            for call in choice.message.tool_calls or ():
                self.call(call.id or "", (call.function.name if call.function is not None else None) or "")
            self._finish(choice.finish_reason or "")

    def _finish(self, reason: str) -> None:
        """Of several choices, the one with calls says it."""
        if reason and self.finish_reason not in CALLS:
            self.finish_reason = reason

    def take(self, answer: object) -> None:
        found = as_object(answer)
        if not found:
            return
        self.error = error_text(found) or self.error
        usage = read_usage(found.get("usage")) or read_usage(as_object(found.get("x_groq")).get("usage"))
        self.usage = usage or self.usage  # the last one wins; some repeat it in every chunk
        for choice in as_objects(found.get("choices")):
            self._take_choice(choice)

    def _take_choice(self, choice: Json) -> None:
        said = as_object(choice.get("delta") or choice.get("message"))
        calls = as_objects(said.get("tool_calls")) or as_objects([said.get("tool_calls")])
        for call in calls:
            self.call(as_text(call.get("id")), as_text(as_object(call.get("function") or call.get("custom")).get("name")))
        if not calls and (only := as_object(said.get("function_call"))):
            self.call("", as_text(only.get("name")))
        if self.calls or choice.get("text") or any(said.get(key) for key in TEXT_KEYS):
            self.token()
        self._finish(as_text(choice.get("finish_reason")))
        self.usage = read_usage(choice.get("usage")) or self.usage  # Moonshot


class Counted(TypedDict, total=False):
    usage: Any


class PassSeen(Observed):
    """A single pass: embeddings, classification. Of an answer that may hold a million numbers only the usage is decoded."""

    __slots__ = ()
    telling = TELLING
    known = msgspec.json.Decoder(Counted)

    def take(self, answer: object) -> None:
        self.usage = read_usage(as_object(answer).get("usage"))


def read_usage(value: object) -> Usage | None:
    """OpenAI's `usage` object; None if it has no counts."""
    usage = as_object(value)
    prompt, completion = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    told = as_object(usage.get("prompt_tokens_details")).get("cached_tokens"), *map(usage.get, CACHED)
    return Usage(prompt or 0, completion or 0, next((count for each in told if (count := as_count(each)) is not None), None))


def is_usage_only(data: bytes) -> bool:
    """Is this event, in which USAGE stands, the extra one that `stream_options.include_usage` asked for?"""
    event = as_object(parse(data))
    if read_usage(event.get("usage")) is None or error_text(event):
        return False
    choices = as_objects(event.get("choices"))
    return all(not each.get("finish_reason") and not as_object(each.get("delta")) and not each.get("text") for each in choices)
