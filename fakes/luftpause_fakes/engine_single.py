"""How does the fake engine answer what takes one pass and no generation: embeddings, classification, counting tokens?"""

import asyncio
import base64
import hashlib
import struct
from typing import Any

from luftpause_fakes.engine_asked import BadRequestError, Json
from luftpause_fakes.engine_chat import read_chat
from luftpause_fakes.engine_messages import read_messages
from luftpause_fakes.engine_state import EngineState
from luftpause_fakes.engine_text import prompt_segments, tokens_of

DIMENSIONS = 16
VOCABULARY = 32_000
PASS_SECONDS = 0.004  # of an idle engine, beside prefill


async def embeddings(state: EngineState, asked: Json) -> Json:
    """Raises BadRequestError."""
    texts = _texts(asked)
    tokens = await _pass(state, texts)
    as_base64 = asked.get("encoding_format") == "base64"
    vectors = [_vector(text) for text in texts]
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if as_base64 else vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": state.options.model, "data": data, "usage": usage}


async def classification(state: EngineState, asked: Json) -> Json:
    """As vLLM answers `/classify`. Raises BadRequestError."""
    texts = _texts(asked)
    tokens = await _pass(state, texts)
    data = [_labelled(state.options.labels, index, text) for index, text in enumerate(texts)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    return {"id": f"classify-{state.next_id()}", "object": "list", "created": 0, "model": state.options.model, "data": data, "usage": usage}


def token_count(state: EngineState, asked: Json) -> Json:
    """Of a Messages request. Raises BadRequestError."""
    read = read_messages(asked)
    return {"input_tokens": sum(segment.tokens for segment in prompt_segments(state.options.model, read.messages, read.tools))}


def rendered(state: EngineState, asked: Json) -> Json:
    """As vLLM tokenises a chat for those who route it: the same beginning has the same tokens. Raises BadRequestError."""
    read = read_chat(asked)
    segments = prompt_segments(state.options.model, read.messages, read.tools)
    tokens = [(segment.key + place) % VOCABULARY for segment in segments for place in range(segment.tokens)]
    return {"request_id": f"chatcmpl-{state.next_id()}", "model": state.options.model, "token_ids": tokens, "priority": read.priority}


def _texts(asked: Json) -> list[str]:
    given: Any = asked.get("input")
    texts: list[Any] = [given] if isinstance(given, str) else given
    if not isinstance(texts, list):  # pyright: ignore[reportUnnecessaryIsInstance]
        texts = []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise BadRequestError("'input' is required and must be a text or a list of texts, none of them empty")
    return texts


async def _pass(state: EngineState, texts: list[str]) -> int:
    """It shares nothing with the turns: engines of one pass have no queue of generations."""
    tokens = sum(tokens_of(text) for text in texts)
    await asyncio.sleep((PASS_SECONDS + tokens / state.options.prefill_tokens_per_second) / state.options.speed)
    return tokens


def _vector(text: str) -> list[float]:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=DIMENSIONS * 4).digest()
    raw = [number / 2**31 - 1.0 for number in struct.unpack(f"<{DIMENSIONS}I", digest)]
    length = sum(value * value for value in raw) ** 0.5 or 1.0
    return [round(value / length, 7) for value in raw]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _labelled(labels: tuple[str, ...], index: int, text: str) -> Json:
    """The label that the text names wins; else its hash decides."""
    weights = [
        (8.0 if label.lower() in text.lower() else 1.0) + hashlib.blake2b(f"{label} {text}".encode(errors="replace")).digest()[0] / 255
        for label in labels
    ]
    probabilities = [round(weight / sum(weights), 4) for weight in weights]
    label = labels[max(range(len(labels)), key=probabilities.__getitem__)]
    return {"index": index, "label": label, "probs": probabilities, "num_classes": len(labels)}
