"""When is a conversation the beginning of another one?"""

import json

from luftpause_fakes.engine_text import answer_segments, pieces, prompt_segments, tokens_of

TOOLS = [{"type": "function", "function": {"name": "lookup"}}]
HEAD = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x" * 1000}]


def call(arguments: str) -> dict:
    return {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": arguments}}


def test_the_next_turn_begins_with_the_former_prompt_and_its_answer() -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": [call('{"query": "owls", "n": 1}')]}
    first = prompt_segments("m", HEAD, TOOLS)
    sent_back = {"role": "assistant", "content": "", "tool_calls": [{**call('{"n":1,"query":"owls"}'), "id": "other"}]}
    second = prompt_segments("m", [*HEAD, sent_back, {"role": "tool", "tool_call_id": "a", "content": "two"}], TOOLS)
    begun = first + answer_segments(first, answer)
    assert second[: len(begun)] == begun


def test_other_texts_models_and_tools_share_nothing() -> None:
    first = prompt_segments("m", HEAD, TOOLS)
    others = (
        prompt_segments("other", HEAD, TOOLS),
        prompt_segments("m", HEAD, []),
        prompt_segments("m", [{"role": "system", "content": "Be briefer."}, HEAD[1]], TOOLS),
    )
    for other in others[:2]:
        assert not {segment.key for segment in first} & {segment.key for segment in other}
    assert first[:2] == others[2][:2]  # the tools and the role
    assert not {segment.key for segment in first[2:]} & {segment.key for segment in others[2]}


def test_two_long_messages_share_their_equal_beginning() -> None:
    left = prompt_segments("m", [{"role": "user", "content": "a" * 600 + "left"}], [])
    right = prompt_segments("m", [{"role": "user", "content": "a" * 600 + "right"}], [])
    shared = [one for one, other in zip(left, right, strict=True) if one == other]
    assert sum(segment.tokens for segment in shared) == 4 + 2 * 64


def test_content_in_parts_counts_like_the_same_text() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "owls"}]}]
    assert prompt_segments("m", parts, []) == prompt_segments("m", [{"role": "user", "content": "owls"}], [])


def test_pieces_are_the_tokens_and_lone_surrogates_are_carried() -> None:
    text = json.loads('"a \\ud83e b"') * 5
    assert "".join(pieces(text)) == text
    assert len(pieces(text)) == tokens_of(text)
    assert prompt_segments("m", [{"role": "user", "content": text}], [])
