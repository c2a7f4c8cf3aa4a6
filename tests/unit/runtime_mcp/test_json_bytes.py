"""Is half a surrogate pair replaced, wherever a stream is cut, and nothing else touched?"""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from luftpause.runtime.json_bytes import Mender, clean, without_lone_surrogates
from luftpause.runtime.tools.http import Mending
from luftpause.runtime.tools.stdio import mended

PIECES = ["\\", "\\\\", "\\u", "\\ud83e", "\\udd16", "\\uD83E", "\\u00e9", "\\n", '\\"', "a", "ud83e", "\n\n", "é", "LATIN", "🤖"]


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.data())
def test_a_stream_comes_out_as_the_whole_would(text: str, data: st.DataObject) -> None:
    whole, mender = text.encode().replace(b"LATIN", b"\xe9"), Mender()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join(map(mender.feed, parts)) + mender.end() == clean(whole)


@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_json_that_python_writes_is_then_text_that_utf8_can_carry(text: str) -> None:
    read = json.loads(without_lone_surrogates(json.dumps(text).encode()))
    assert read == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize("event", [b'data: {"a":"x\\n"}\n\n', b'data: {"a":"\\\\"}\r\n\r\n', b'data: "\\ud83e"\n\n'])
def test_a_whole_event_is_never_held_back(event: bytes) -> None:
    mender = Mender()
    assert mender.feed(event) == without_lone_surrogates(event)
    assert mender.end() == b""


def refusal(line: str) -> Exception:
    with pytest.raises(ValidationError) as error:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    return error.value


def test_a_message_within_an_answer_is_not_taken_for_its_beginning() -> None:
    """Of a tool that tells of messages; Go and Java write `id` first."""
    found = mended(refusal('{"id":7,"jsonrpc":"2.0","result":{"text":"\\ud83e","structuredContent":{"jsonrpc":"2.0","id":8,"result":{}}}}'))
    assert found is not None
    assert found.message.model_dump(by_alias=True)["id"] == 7


def test_an_answer_over_stdio_with_half_a_character_is_mended() -> None:
    found = mended(refusal('{"jsonrpc":"2.0","id":7,"result":{"text":"cut \\ud83e"}}'))
    assert found is not None
    assert found.message == JSONRPCResponse(jsonrpc="2.0", id=7, result={"text": "cut \ufffd"})


@pytest.mark.parametrize("line", ['{"jsonrpc":"2.0","id":7,"result":null}', '{"id":7}', '{"jsonrpc":"2.0","id":7,"result":NaN}'])
def test_an_answer_over_stdio_that_can_not_be_used_fails_its_call_at_once(line: str) -> None:
    found = mended(refusal(line))
    assert found is not None
    assert isinstance(found.message, JSONRPCError)
    assert found.message.id == 7


@pytest.mark.parametrize("line", ["hello", "[]", "3", "{}", '{"id":{}}', '{"id":1,"method":5}', "[" * 5000])
def test_prose_over_stdio_is_no_message(line: str) -> None:
    assert mended(refusal(line)) is None


class Chunks(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in (b'{"a":"\\ud8', b'3e", "b":"\\ud83e\\u', b'dd16"}'):
            yield chunk


async def test_an_answer_over_http_is_mended_while_it_streams() -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Chunks(), headers={"content-length": "37"}))
    async with httpx2.AsyncClient(transport=Mending(transport)) as client:
        assert (await client.get("http://tools/")).json() == {"a": "\ufffd", "b": "🤖"}
