"""Do the official clients read a held stream's comments, and what goes wrong after them, as they should?"""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import openai
import pytest

from luftpause.dataplane.app import Dataplane
from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import running_plane
from tests.support.raw_engine import Talk, raw_engine

CHAT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n',
    b"data: [DONE]\n\n",
)
START = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None, "stop_sequence": None}
DELTA = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": 1, "logprobs": []}


def event(**data: Any) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


MESSAGES = (
    event(type="message_start", message=START | {"usage": {"input_tokens": 1, "output_tokens": 0}}),
    event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"}),
    event(type="message_stop"),
)
RESPONSES = (event(**DELTA, delta="hi"),)
SAID: Any = [{"role": "user", "content": "hello"}]


class Held:
    """A proxy whose turns are held until a comment has gone out; then they are placed, or refused."""

    def __init__(self, scheduler: FakeScheduler, plane: Dataplane) -> None:
        self.scheduler = scheduler
        self.openai = openai.AsyncOpenAI(base_url=plane.url + "/v1", api_key="x", max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=plane.url, api_key="x", max_retries=0)

    async def stream(self, api: str) -> Any:
        """The client has its head by then."""
        match api:
            case "chat":
                return await self.openai.chat.completions.create(model="m", messages=SAID, stream=True)
            case "responses":
                return await self.openai.responses.create(model="m", input="hello", stream=True)
            case _:
                return await self.anthropic.messages.create(model="m", messages=SAID, max_tokens=5, stream=True)


EVENTS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
APIS = pytest.mark.parametrize("api", EVENTS)


@contextlib.asynccontextmanager
async def held() -> AsyncGenerator[Held]:
    async def behave(talk: Talk) -> None:
        path = talk.head.split(b" ")[1]
        await talk.stream(*next(events for api, events in EVENTS.items() if api.encode() in path))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=0.01) as plane:
            made = Held(scheduler, plane)
            async with made.openai, made.anthropic:
                yield made


def text_of(event: Any) -> str:
    match getattr(event, "type", "chunk"):
        case "chunk":
            return event.choices[0].delta.content
        case "response.output_text.delta":
            return event.delta
        case "content_block_delta":
            return event.delta.text
        case _:
            return ""


@APIS
async def test_comments_are_nothing_to_them(api: str) -> None:
    async with held() as made:
        stream = await made.stream(api)
        made.scheduler.place(made.scheduler.only, "a")
        assert "".join([text_of(event) async for event in stream]) == "hi"


@APIS
async def test_a_refusal_after_the_head_is_an_error_to_them(api: str) -> None:
    async with held() as made:
        stream = await made.stream(api)
        made.scheduler.refuse(made.scheduler.only, 503, "no_replica", "nobody is there", 2)
        with pytest.raises((openai.APIError, anthropic.APIError), match="nobody is there"):
            async for _ in stream:
                pass
