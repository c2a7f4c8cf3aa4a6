"""Which turn does a request's body ask of the fake engine?"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import orjson
from msgspec import Struct
from msgspec.structs import replace

from luftpause_fakes import engine_script
from luftpause_fakes.engine_asked import Asked, BadRequestError, Json
from luftpause_fakes.engine_chat import ChatWriter, CompletionWriter, read_chat, read_completion
from luftpause_fakes.engine_directives import DirectiveError
from luftpause_fakes.engine_flavours import Refusal
from luftpause_fakes.engine_messages import MessageWriter, read_messages
from luftpause_fakes.engine_model import EngineRequest, Finished
from luftpause_fakes.engine_responses import ResponseWriter, read_responses
from luftpause_fakes.engine_state import EngineState, Kept
from luftpause_fakes.engine_text import answer_segments, prompt_segments


class Writer(Protocol):
    """Writes one answer: `head` before the first token, one `part` per delta, `end`; or `whole`. `failed` ends a stream that has begun."""

    def deltas(self) -> list[Any]: ...
    def head(self) -> bytes: ...
    def part(self, delta: Any, prompt_tokens: int, tokens: int) -> bytes: ...
    def end(self, finished: Finished) -> bytes: ...
    def whole(self, finished: Finished) -> Json: ...
    def failed(self, error: Json) -> bytes: ...


class Format(Struct, frozen=True):
    """`read` raises BadRequestError."""

    read: Callable[[Json], Asked]
    writer: Callable[..., Writer]


FORMATS = {
    "/v1/chat/completions": Format(read_chat, ChatWriter),
    "/v1/completions": Format(read_completion, CompletionWriter),
    "/v1/responses": Format(read_responses, ResponseWriter),
    "/v1/messages": Format(read_messages, MessageWriter),
}


class Turn(Struct, frozen=True):
    """A turn that the engine can take. `kept`: what is stored of it when it has finished."""

    request: EngineRequest
    writer: Writer
    asked: Asked
    kept: Kept | None = None


def read_turn(state: EngineState, body: bytes, form: Format) -> Turn | Refusal:
    """A turn's body, or why it can't be one."""
    try:
        return _turn(state, read_body(state, body), form)
    except (BadRequestError, DirectiveError) as error:
        return refusal_of(state, error)


def refusal_of(state: EngineState, error: ValueError) -> Refusal:
    status = error.status if isinstance(error, BadRequestError) else 400
    return Refusal(status, state.flavour.error(status, str(error), "BadRequestError" if status == 400 else "NotFoundError"))


def read_body(state: EngineState, body: bytes) -> Json:
    """A JSON object whose model is served here. Raises BadRequestError."""
    try:
        asked: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise BadRequestError("the body must be a JSON object")
    found: Json = asked  # pyright: ignore[reportUnknownVariableType]
    model = str(found.get("model") or state.options.model)
    if state.flavour.checks_model and model != state.options.model:
        raise BadRequestError(f"The model `{model}` does not exist. Valid aliases: {state.options.model}.", 404)
    return found


def _turn(state: EngineState, body: Json, form: Format) -> Turn | Refusal:
    options, flavour = state.options, state.flavour
    number = state.next_id()
    asked = form.read(body)
    if asked.previous:
        asked = replace(asked, messages=[*state.kept(asked.previous).messages, *asked.messages])
    prompt = prompt_segments(options.model, asked.messages, asked.tools)
    prompt_tokens = sum(segment.tokens for segment in prompt)
    if prompt_tokens >= options.context:
        return flavour.too_long(prompt_tokens, options.context)
    room = options.context - prompt_tokens
    most = min(asked.tokens_max or room, room)
    found = engine_script.answer(
        engine_script.Question(
            messages=asked.messages,
            tools=asked.tools,
            tool_choice=asked.tool_choice,
            response_schema=asked.schema,
            id_prefix=flavour.call_id_prefix,
            id_hex=flavour.call_id_hex,
            ids=state.faults.call_ids,
            tokens_min=asked.tokens_min,
            salt=number,
        )
    ).cut(most)
    request = EngineRequest(
        id=number, prompt=prompt, answer=answer_segments(prompt, found.message()), tokens_max=most, priority=asked.priority
    )  # fmt: skip
    writer = form.writer(
        flavour=flavour, id=number, model=options.model, created=int(time.time()), answer=found, asked=asked,
        cache_report=options.cache_report, usage_form=state.faults.usage,
    )  # fmt: skip
    kept = Kept(f"resp_{number}", [*asked.messages, found.message()]) if asked.store else None
    return Turn(request, writer, asked, kept)
