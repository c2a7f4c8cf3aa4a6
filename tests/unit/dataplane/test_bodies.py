"""Does a long content have the digest of its whole text, although only a little of it is read?"""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.bodies import LONG_BYTES, content_of, digest_of
from luftpause.dataplane.chat import read_chat
from luftpause.dataplane.digest import head_digest

KEY = b"key"
IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "A" * LONG_BYTES}}


def digest(content: Any, *, ascii_only: bool = True) -> bytes:
    raw = msgspec.Raw(json.dumps(content, ensure_ascii=ascii_only).encode())
    return digest_of([("user", content_of(raw))], KEY)


PIECES = st.lists(st.sampled_from(["a", "é", "\\", '"', "\n", "\u2028", "😀", "0x", "2026-11-30 "]), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(PIECES, st.booleans())
def test_the_ends_of_a_long_text_are_found_whatever_stands_there(pieces: list[str], ascii_only: bool) -> None:
    text = "".join(pieces)
    text *= LONG_BYTES // len(text) + 1
    assert digest(text, ascii_only=ascii_only) == head_digest([("user", text)], KEY)


@pytest.mark.parametrize("texts", [["hello"], ["hello", "b" * 10_000, "c" * 4090, "end"], ["x-anthropic-billing-header: 7", "hello"], []])
def test_images_do_not_count(texts: list[str]) -> None:
    parts = [{"type": "text", "text": text} for text in texts]
    kept = [text for text in texts if not text.startswith("x-anthropic")]
    assert digest([*parts, IMAGE]) == head_digest([("user", "\n".join(kept))], KEY)


@pytest.mark.parametrize(
    ("content", "text"), [(["bare", IMAGE], ""), ([{"text": 5}, {"text": "t"}, IMAGE], "t"), ({"a": "b" * LONG_BYTES}, "")]
)
def test_what_has_no_usual_form_is_read_as_a_whole(content: Any, text: str) -> None:
    assert digest(content) == head_digest([("user", text)], KEY)


def test_a_body_of_40_mb_is_read_in_a_moment() -> None:
    """Best of three: less than 6 times the time of one pass of its own decoder; with every text decoded it was above 10."""
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * 40_000_000}}
    content = [{"type": "text", "text": "hi"}, image]
    body = json.dumps({"model": "m", "tools": [{}], "messages": [{"role": "user", "content": content}]}).encode()
    once = min(timed(lambda: msgspec.json.decode(body, type=dict[str, msgspec.Raw])) for _ in range(3))
    assert min(timed(lambda: read_chat(body, KEY)) for _ in range(3)) < 6 * once


def timed(action: Any) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start
