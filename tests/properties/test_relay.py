"""Whatever an engine streams and however it is cut: does the client get every byte, and the scheduler one end per turn?"""

import asyncio
import itertools
import json
import os
import re
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.turns import Ask
from tests.support.fake_scheduler import FakeScheduler, place_first, replica
from tests.support.plane import BODY, STREAM_BODY, post
from tests.support.raw_engine import json_answer
from tests.support.wires import FakeTransport, Rig

ENDS = ("finished", "failed", "abandon")
STREAMS = int(os.environ.get("LUFTPAUSE_TEST_STREAMS", "300"))

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
deltas = st.one_of(
    st.builds(lambda text: {"content": text}, words),
    st.builds(lambda text: {"reasoning_content": text}, words),
    st.just({"role": "assistant", "content": None}),
    st.just({}),
    st.builds(
        lambda index, call, arguments: {
            "tool_calls": [{"index": index, "function": {"name": call[-1:], "arguments": arguments}} | ({"id": call} if call else {})]
        },
        st.integers(0, 2),
        st.sampled_from(["", "call_a", "call_b"]),
        words,
    ),
)
events = st.one_of(
    st.builds(
        lambda choices, finish: {"choices": [{"index": n, "delta": d, "finish_reason": finish} for n, d in enumerate(choices)]},
        st.lists(deltas, max_size=3),
        st.sampled_from([None, "stop", "tool_calls", "length"]),
    ),
    st.builds(lambda n: {"choices": [], "usage": {"prompt_tokens": n, "completion_tokens": n}}, st.integers(0, 9)),
    st.builds(lambda n: {"usage": {"prompt_tokens": n}}, st.integers(0, 9)),
    st.builds(lambda text: {"choices": [{"index": 0, "text": text, "finish_reason": None}]}, words),
    st.builds(lambda text, code: {"error": {"message": text, "code": code}}, words, st.sampled_from([400, 504, "x"])),
)
calls = st.sampled_from(["", "call_a", "call_b", None, 7])
response_events = st.one_of(
    st.builds(
        lambda kind, call: {"type": f"response.output_item.{kind}", "item": {"type": "function_call", "call_id": call, "name": call}},
        st.sampled_from(["added", "done"]),
        calls,
    ),
    st.builds(
        lambda kind, text: {"type": f"response.{kind}.delta", "delta": text},
        st.sampled_from(["output_text", "reasoning_text", "function_call_arguments"]),
        words,
    ),
    st.builds(
        lambda kind, n, call, store: {
            "type": f"response.{kind}",
            "response": {
                "id": "resp_1",
                "status": kind,
                "store": store,
                "usage": {"input_tokens": n, "output_tokens": n},
                "output": [{"type": "function_call", "call_id": call}],
                "incomplete_details": {"reason": "max_output_tokens"} if kind == "incomplete" else None,
            },
        },
        st.sampled_from(["created", "in_progress", "completed", "incomplete", "failed"]),
        st.integers(0, 9),
        calls,
        st.booleans(),
    ),
)
message_events = st.one_of(
    st.builds(lambda n: {"type": "message_start", "message": {"usage": {"input_tokens": n}}}, st.integers(0, 9)),
    st.builds(lambda call: {"type": "content_block_start", "content_block": {"type": "tool_use", "id": call, "name": call}}, calls),
    st.builds(
        lambda key, text: {"type": "content_block_delta", "delta": {"type": f"{key}_delta", key: text}},
        st.sampled_from(["text", "thinking", "partial_json"]),
        words,
    ),
    st.builds(
        lambda reason, n: {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": n}},
        st.sampled_from([None, "tool_use", "end_turn", "max_tokens"]),
        st.integers(0, 9),
    ),
    st.sampled_from([{"type": "ping"}, {"type": "message_stop"}, {"type": "error", "error": {"type": "overloaded_error"}}]),
)
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]


def lines_of(*told: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda event, space, ascii_: b"data:" + b" " * space + json.dumps(event, ensure_ascii=ascii_).encode(),
        st.one_of(*told),
        st.integers(0, 1),
        st.booleans(),
    )


lines = st.one_of(
    lines_of(events, response_events, message_events),
    st.sampled_from([
        b": ping",
        b"event: x",
        b"data: not json",
        b'data: {"broken',
        b"data: [DONE]",
        b"",
        b'data: {"choices": 5}',
        b"data: [1]",
        rb'data: {"choices":[{"delta":{"content":"\ud83d"}}]}',
        b"data: \xff\xfe",
        b"retry: 5",
    ]),
)
ends = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n"])
streams = st.lists(st.tuples(lines, ends), min_size=1, max_size=12).map(lambda parts: b"".join(line + end for line, end in parts))


def even_streams(*told: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """What an engine would send of one API, in chunks of one length, as short ones often have: they take shorter ways."""
    times = st.sampled_from([1, 3])
    return st.tuples(st.lists(st.tuples(lines_of(*told), times), min_size=2, max_size=8), ends).map(
        lambda drawn: b"".join((line.ljust(400) + drawn[1]) * count for line, count in drawn[0])
    )


OWN_STREAMS = {path: even_streams(told) for path, told in zip(PATHS, (events, events, response_events, message_events), strict=True)}
answered = st.sampled_from(PATHS).flatmap(lambda path: st.tuples(st.just(path), st.one_of(streams, OWN_STREAMS[path])))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at) if end > start]


def framed(body: bytes, how: str, chunk_places: list[int]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    match how:
        case "sized":
            return head + b"content-length: %d\r\n\r\n" % len(body) + body
        case "close":
            return head + b"\r\n" + body
        case _:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in cut(body, chunk_places))
            return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def in_reads(body: bytes, chunk_places: list[int]) -> list[bytes]:
    """As most engines send: each read is one chunk of whole lines, but for a few that end elsewhere."""
    ends = {match.end() for match in re.finditer(rb"(?:\r?\n)+", body)}
    odd = {place % (len(body) + 1) for place in chunk_places[:2]}
    at = sorted({0, len(body)} | ends | odd)
    chunks = [b"%x\r\n%b\r\n" % (end - start, body[start:end]) for start, end in itertools.pairwise(at)]
    return [framed(b"", "chunked", []).removesuffix(b"0\r\n\r\n"), *chunks, b"0\r\n\r\n"]


def read(data: bytes, *, closed: bool) -> tuple[int, bytes, bool]:
    """Status, body and completeness of one answer, as h11 sees it."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    if closed:
        client.receive_data(b"")
    status, body = 0, b""
    while True:
        try:
            event = client.next_event()
        except h11.RemoteProtocolError:
            assert closed
            return status, body, False
        match event:
            case h11.Response(status_code=status):
                pass
            case h11.Data(data=data):
                body += bytes(data)
            case h11.EndOfMessage():
                assert not client.trailing_data[0], "bytes behind the answer"
                return status, body, True
            case h11.InformationalResponse():
                pass
            case _:
                return status, body, False


@given(
    answer=answered,
    how=st.sampled_from(["sized", "chunked", "close", "a chunk a read", "a chunk a read"]),
    places=st.lists(st.integers(0, 5000), max_size=20),
    chunk_places=st.lists(st.integers(0, 5000), max_size=8),
    version=st.sampled_from(["1.1", "1.0"]),
    usage=st.sampled_from(["observe", "observe", "ask"]),
)
@settings(max_examples=STREAMS)
def test_every_byte_of_a_stream_reaches_the_client_however_it_was_cut(
    answer: tuple[str, bytes], how: str, places: list[int], chunk_places: list[int], version: str, usage: str
) -> None:
    """LUFTPAUSE_TEST_STREAMS says how many streams."""
    path, body = answer
    pieces = in_reads(body, chunk_places) if how == "a chunk a read" else cut(framed(body, how, chunk_places), places)
    whole = b"".join(pieces)
    due = without_usage(body) if usage == "ask" and path in PATHS[:2] else body

    async def run(pieces: list[bytes]) -> tuple[FakeScheduler, FakeTransport]:
        scheduler = FakeScheduler(replica("a", "http://a"))
        with pytest.MonkeyPatch.context() as patch:
            rig = Rig(scheduler, usage=usage).patch(patch)
            client = rig.client()
            client.receives(post(STREAM_BODY, version=version, path=path))
            engine = rig.connecting[0].made()
            assert engine is not None
            for piece in pieces:
                engine.receives(piece)
            if how == "close":
                engine.peer_closes()
            await asyncio.sleep(0)
            assert not rig.relay.turns
            return scheduler, client

    cut_scheduler, client = asyncio.run(run(pieces))
    status, got, complete = read(bytes(client.written), closed=version == "1.0" or bool(client.lost))
    assert (status, got, complete) == (200, due, True)
    assert bytes(client.written).endswith(due) or version == "1.1"
    # What is seen does not depend on the cuts either.
    whole_scheduler, _ = asyncio.run(run([whole]))
    assert seen(cut_scheduler) == seen(whole_scheduler)


def without_usage(body: bytes) -> bytes:
    """What a client gets that did not ask for usage where luftpause did: all but the events that hold nothing else."""
    return b"".join(event for event in re.findall(rb"(?s).*?\n\r?\n|.+$", body) if not tells_only_usage(event))


def tells_only_usage(event: bytes) -> bool:
    data = [line.strip()[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    try:
        value = json.loads(b"\n".join(each for each in data if each))
    except ValueError:
        return False
    if not isinstance(value, dict) or value.get("choices") or "error" in value or not isinstance(value.get("usage"), dict):
        return False
    return any(isinstance(value["usage"].get(name), int) for name in ("prompt_tokens", "completion_tokens"))


def seen(scheduler: FakeScheduler) -> list[Any]:
    """The facts of the only turn; ids are joined, as cuts decide how many come at once, and which facts come together."""
    ids = [each for fact in scheduler.facts if fact[0] == "tool_calls_seen" for each in fact[2]]  # type: ignore[union-attr]
    responses = [fact[2] for fact in scheduler.facts if fact[0] == "response_seen"]
    rest = [fact[0:1] + fact[2:] for fact in scheduler.facts if fact[0] not in {"tool_calls_seen", "response_seen"}]
    return [ids, responses, list(scheduler.tools.values()), *rest]


# ---- all the ways in which a turn can end ---------------------------------------------------------------------------

GOOD_JSON = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
CALLING = (
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"id":"c1"}]},"finish_reason":"tool_calls"}]}\n\n'
)
ANSWERS = {
    "json": json_answer(GOOD_JSON),
    "stream": framed(CALLING, "chunked", [40]),
    "error": json_answer(b"{}", "500 Oh"),
    "busy": json_answer(b'{"error":"server busy, please try again.  maximum pending requests exceeded"}', "503 Busy"),
    "busy stream": framed(b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n', "chunked", []),
    "empty": json_answer(b""),
    "until close": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}",
    "garbage": b"what?\r\n\r\n",
}
STEPS = [
    "place",
    "place",
    "hold",
    "hold none",
    "refuse",
    "connect",
    "connect",
    "refuse connection",
    "engine bytes",
    "engine bytes",
    "engine bytes",
    "engine closes",
    "engine resets",
    "client leaves",
    "client half-closes",
    "client sends",
    "pause",
    "resume",
    "time",
    "stop",
    "kill",
    "extra bytes",
]


class Story:
    """One turn, told step by step by hypothesis."""

    def __init__(self, rig: Rig, scheduler: FakeScheduler, answers: list[str]) -> None:
        self.rig, self.scheduler, self.answers = rig, scheduler, answers
        self.client = rig.client()
        self.rest: dict[int, bytes] = {}
        self.now = rig.sweep.now

    def step(self, name: str, size: int) -> None:  # noqa: C901, PLR0912 - a table of what can happen
        held = [turn for turn, state in self.scheduler.state.items() if state == "held"]
        engine = self.rig.engines[-1] if self.rig.engines else None
        match name:
            case "place" if held:
                self.scheduler.place(held[0], "ab"[size % 2])
            case "hold" if held:
                self.scheduler.hold(held[0], "capped")
            case "hold none" if held:
                self.scheduler.hold(held[0], "no_replica")
            case "refuse" if held:
                self.scheduler.refuse(held[0], 404, "x", "x")
            case "connect" if self.rig.connecting:
                self.rig.connecting[0].made()
            case "refuse connection" if self.rig.connecting:
                self.rig.connecting[0].refused()
            case "engine bytes" if engine is not None and engine.written:
                rest = self.rest.get(id(engine), ANSWERS[self.answers[(len(self.rig.engines) - 1) % len(self.answers)]])
                if engine.receives(rest[:size]):
                    self.rest[id(engine)] = rest[size:]
            case "extra bytes" if engine is not None and self.rest.get(id(engine)) == b"":
                engine.receives(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nEVIL")
            case "engine closes" if engine is not None:
                engine.peer_closes()
            case "engine resets" if engine is not None:
                engine.peer_closes(ConnectionResetError())
            case "client leaves":
                self.client.peer_closes(ConnectionResetError())
            case "client half-closes":
                self.client.peer_closes()
            case "client sends":
                self.client.receives(post(BODY))
            case "pause" if not self.client.lost:
                self.client.protocol.pause_writing()
            case "resume" if not self.client.lost:
                self.client.protocol.resume_writing()
            case "time":
                self.now += size
                self.rig.sweep.look(self.now)
            case "stop":
                self.rig.door.stopping = True
                self.rig.relay.stop()
            case "kill":
                self.rig.relay.kill()
            case _:
                pass


@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([1, 7, 40, 100, 1000])), max_size=25),
    answers=st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=3),
    failover=st.booleans(),
    on_busy=st.sampled_from(["hold", "pass"]),
    ticks=st.booleans(),
)
@settings(max_examples=1000)
def test_however_a_turn_goes_it_ends_exactly_once(
    steps: list[tuple[str, int]], answers: list[str], failover: bool, on_busy: str, ticks: bool
) -> None:
    async def run() -> None:
        def decide(_: FakeScheduler, __: Ask) -> None:
            """The story decides."""

        scheduler = FakeScheduler(replica("a", "http://a"), replica("b", "http://b"), decide=decide)
        with pytest.MonkeyPatch.context() as patch:
            rig = Rig(scheduler, failover=failover, on_busy=on_busy).patch(patch)
            story = Story(rig, scheduler, answers)
            story.client.receives(post(STREAM_BODY))
            for name, size in steps:
                story.step(name, size)
                assert len(rig.relay.turns) == len(scheduler.open_turns), "what the scheduler counts is what runs here"
                if ticks:
                    await asyncio.sleep(0)
            rig.relay.kill()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not rig.relay.turns
            assert not scheduler.open_turns
            for turn in scheduler.asks:
                assert sum(name in ENDS for name in scheduler.told(turn)) <= 1
            assert b"EVIL" not in story.client.written
            if story.client.written and not any(name == "client sends" for name, _ in steps):
                read(bytes(story.client.written), closed=bool(story.client.lost))
            for engine in rig.engines:
                assert engine.lost or engine.protocol.usable  # type: ignore[attr-defined]

    asyncio.run(run())


def test_the_story_reaches_every_end() -> None:
    """A guard for the test above: its steps can lead to each kind of end."""

    async def run(steps: list[tuple[str, int]], answer: str) -> list[str]:
        scheduler = FakeScheduler(replica("a", "http://a"), decide=place_first)
        with pytest.MonkeyPatch.context() as patch:
            rig = Rig(scheduler).patch(patch)
            story = Story(rig, scheduler, [answer])
            story.client.receives(post(STREAM_BODY))
            for name, size in steps:
                story.step(name, size)
            return scheduler.told()

    full = [("connect", 1), ("engine bytes", 1000)]
    assert asyncio.run(run(full, "stream")) == ["ask", "started", "first_token", "tool_calls_seen", "finished"]
    assert asyncio.run(run(full, "json")) == ["ask", "started", "finished"]
    assert asyncio.run(run(full, "error")) == ["ask", "started", "failed"]
    assert asyncio.run(run(full, "busy")) == ["ask", "started", "give_back"]
    assert asyncio.run(run(full, "busy stream")) == ["ask", "started", "give_back"]
    assert asyncio.run(run(full, "empty")) == ["ask", "started", "failed"]
    assert asyncio.run(run([*full, ("engine closes", 1)], "until close")) == ["ask", "started", "finished"]
    assert asyncio.run(run([("client leaves", 1)], "json")) == ["ask", "abandon"]
