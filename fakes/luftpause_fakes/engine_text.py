"""How many tokens has a conversation, and which beginnings does it share with others?

Tokens are four characters each: exact enough for queues and memory, and the same text always gives the same tokens.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from luftpause_fakes.engine_model_cache import Segment

Json = dict[str, Any]

TOKEN_CHARACTERS = 4
BLOCK_TOKENS = 64  # so much of a long message is shared or evicted at once
ROLE_TOKENS = 4  # what a chat template puts before each message


def tokens_of(text: str) -> int:
    return -(-len(text) // TOKEN_CHARACTERS)


def pieces(text: str) -> list[str]:
    """The text token by token."""
    return [text[at : at + TOKEN_CHARACTERS] for at in range(0, len(text), TOKEN_CHARACTERS)]


def text_of(content: object) -> str:
    """The text of a message's content, which is a string, a list of parts or null."""
    match content:
        case str():
            return content
        case list():
            parts: list[Any] = content  # pyright: ignore[reportUnknownVariableType]
            return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        case _:
            return ""


def prompt_segments(model: str, messages: Sequence[Json], tools: Sequence[Json]) -> tuple[Segment, ...]:
    """The conversation as a path of segments, up to where the assistant begins to speak.

    Tools come first, as chat templates put them into the system prompt.
    """
    chain = _Chain(_hashed(0, model))
    if tools:
        chain.add(_dumped(tools))
    for message in messages:
        chain.begin(str(message.get("role")))
        chain.add(message_text(message))
    chain.begin("assistant")
    return tuple(chain.segments)


def answer_segments(prompt: tuple[Segment, ...], message: Json) -> tuple[Segment, ...]:
    """What the assistant's message adds to the prompt; the same keys come again when a client sends the message back."""
    chain = _Chain(prompt[-1].key)
    chain.add(message_text(message) or " ")
    return tuple(chain.segments)


def message_text(message: Json) -> str:
    """Harnesses send `content: null` back as an empty text, leave ids out or format arguments anew: all that is the same prefix."""
    calls: list[Any] = message.get("tool_calls") or []
    return "\n".join(filter(None, (text_of(message.get("content")), *(call_text(call) for call in calls))))


def call_text(call: Json) -> str:
    """A tool call as an engine generates it: the name and its arguments."""
    function: Json = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return f"{function.get('name')}{arguments}"
    return f"{function.get('name')}{_dumped(arguments)}"


def _dumped(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


class _Chain:
    def __init__(self, key: int) -> None:
        self.segments: list[Segment] = []
        self._key = key

    def begin(self, role: str) -> None:
        self._extend(f"<{role}>", ROLE_TOKENS)

    def add(self, text: str) -> None:
        size = BLOCK_TOKENS * TOKEN_CHARACTERS
        for at in range(0, len(text), size):
            block = text[at : at + size]
            self._extend(block, tokens_of(block))

    def _extend(self, text: str, tokens: int) -> None:
        self._key = _hashed(self._key, text)
        self.segments.append(Segment(self._key, tokens))


def _hashed(key: int, text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, key=key.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big")
