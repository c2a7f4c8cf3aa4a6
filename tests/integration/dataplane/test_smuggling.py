"""Can a request be hidden in another one, or an answer in another one?

Whoever sends both readings of one message hopes that two programs on the way take different ones. Each such message is refused, or goes on
in the only framing that luftpause writes; what is hidden behind it reaches nobody.
"""

import json

import pytest

from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import BODY, Client, client_of, post, running_plane
from tests.support.raw_engine import Talk, chunked, json_answer, raw_engine

GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
HIDDEN = post(b'{"model":"hidden"}', path="/v1/completions", x_request_id="hidden")
ONCE = chunked(BODY) + b"0\r\n\r\n"
TE = b"transfer-encoding: chunked\r\n"
SIZED = b"content-length: %d\r\n" % len(BODY)


def ask(lines: bytes, body: bytes, first: bytes = b"POST /v1/chat/completions HTTP/1.1", host: bytes = b"host: localhost\r\n") -> bytes:
    return first + b"\r\n" + host + b"content-type: application/json\r\n" + lines + b"\r\n" + body


async def good(talk: Talk) -> None:
    await talk.send(json_answer(GOOD))


REFUSED = {
    # two framings
    "length and coding": (ask(SIZED + TE, ONCE), 400),
    "coding and length": (ask(TE + SIZED, ONCE), 400),
    "coding and length 0": (ask(TE + b"content-length: 0\r\n", ONCE), 400),
    "coding and length, folded": (ask(SIZED + b"transfer-encoding:\r\n chunked\r\n", ONCE), 400),
    "two lengths": (ask(SIZED + b"content-length: 3\r\n", BODY), 400),
    "twice the same length": (ask(SIZED + SIZED, BODY), 400),
    "a list of lengths": (ask(b"content-length: %d, %d\r\n" % (len(BODY), len(BODY)), BODY), 400),
    # lengths
    "length with a plus": (ask(b"content-length: +%d\r\n" % len(BODY), BODY), 400),
    "negative length": (ask(b"content-length: -1\r\n", BODY), 400),
    "hexadecimal length": (ask(b"content-length: 0x10\r\n", BODY), 400),
    "length with a space": (ask(b"content-length: 1 0\r\n", BODY), 400),
    "length with an underscore": (ask(b"content-length: 1_0\r\n", BODY), 400),
    "empty length": (ask(b"content-length:\r\n", BODY), 400),
    "length with a dot": (ask(b"content-length: %d.0\r\n" % len(BODY), BODY), 400),
    "length beyond 64 bits": (ask(b"content-length: 18446744073709551617\r\n", BODY), 400),
    "endless length": (ask(b"content-length: " + b"9" * 400 + b"\r\n", BODY), 400),
    # codings
    "xchunked": (ask(b"transfer-encoding: xchunked\r\n", ONCE), 400),
    "identity": (ask(b"transfer-encoding: identity\r\n", BODY), 400),
    "chunked, identity": (ask(b"transfer-encoding: chunked, identity\r\n", ONCE), 400),
    "identity, chunked": (ask(b"transfer-encoding: identity, chunked\r\n", ONCE), 501),
    "chunked, chunked": (ask(b"transfer-encoding: chunked, chunked\r\n", ONCE), 400),
    "chunked twice": (ask(TE + TE, ONCE), 400),
    "chunked with a parameter": (ask(b"transfer-encoding: chunked;q=1\r\n", ONCE), 400),
    "chunked in quotes": (ask(b'transfer-encoding: "chunked"\r\n', ONCE), 400),
    "chunked behind a vertical tab": (ask(b"transfer-encoding: \x0bchunked\r\n", ONCE), 400),
    "chunked behind a comma": (ask(b"transfer-encoding: ,chunked\r\n", ONCE), 501),
    "empty coding": (ask(b"transfer-encoding:\r\n" + SIZED, BODY), 400),
    "gzip": (ask(b"transfer-encoding: gzip\r\n", ONCE), 400),
    # head lines
    "space before the colon": (ask(b"transfer-encoding : chunked\r\n", ONCE), 400),
    "tab before the colon": (ask(b"transfer-encoding\t: chunked\r\n", ONCE), 400),
    "space before the name": (ask(b" transfer-encoding: chunked\r\n", ONCE), 400),
    "folded line": (ask(b"x: y\r\n transfer-encoding: chunked\r\n" + SIZED, BODY), 400),
    "bare LF": (ask(b"x: y\ntransfer-encoding: chunked\r\n" + SIZED, ONCE), 400),
    "bare CR": (ask(b"x: y\rtransfer-encoding: chunked\r\n" + SIZED, ONCE), 400),
    "CR CR LF": (ask(b"x: y\r\r\n" + SIZED, BODY), 400),
    "NUL in a value": (ask(b"x: \0y\r\n" + SIZED, BODY), 400),
    "NUL in a name": (ask(b"x\0: y\r\n" + SIZED, BODY), 400),
    "a name that is no ASCII": (ask(b"x\xffy: z\r\n" + SIZED, BODY), 400),
    "no colon": (ask(b"x\r\n" + SIZED, BODY), 400),
    "empty name": (ask(b": y\r\n" + SIZED, BODY), 400),
    "first line folded": (ask(SIZED, BODY, first=b"POST /v1/chat/completions\r\n HTTP/1.1"), 400),
    # chunks
    "negative chunk": (ask(TE, b"-1\r\n" + BODY), 400),
    "chunk with a plus": (ask(TE, b"+5\r\nhello\r\n0\r\n\r\n"), 400),
    "chunk with 0x": (ask(TE, b"0x5\r\nhello\r\n0\r\n\r\n"), 400),
    "chunk with an underscore": (ask(TE, b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n"), 400),
    "chunk with a space before": (ask(TE, b" 5\r\nhello\r\n0\r\n\r\n"), 400),
    "chunk beyond 64 bits": (ask(TE, b"10000000000000005\r\nhello\r\n0\r\n\r\n"), 400),
    "empty chunk size": (ask(TE, b"\r\nhello\r\n0\r\n\r\n"), 400),
    "chunk size ends in LF": (ask(TE, b"5\nhello\r\n0\r\n\r\n"), 400),
    "chunk ends in LF": (ask(TE, b"5\r\nhello\n0\r\n\r\n"), 400),
    "chunk longer than it says": (ask(TE, b"5\r\nhello!\r\n0\r\n\r\n"), 400),
    "LF in a chunk extension": (ask(TE, b"5;a\nb\r\nhello\r\n0\r\n\r\n"), 400),
    "CR in a chunk extension": (ask(TE, b"5;a\rb\r\nhello\r\n0\r\n\r\n"), 400),
    "huge chunk extension": (ask(TE, b"5;" + b"a" * 100_000 + b"\r\nhello\r\n0\r\n\r\n"), 400),
    "last chunk ends in LF": (ask(TE, chunked(BODY) + b"0\n\n"), 400),
    "trailer ends in LF": (ask(TE, chunked(BODY) + b"0\r\nx: y\n\r\n"), 400),
    "trailer with a length": (ask(TE, chunked(BODY) + b"0\r\ncontent-length: 3\r\n\r\n"), 400),
    "trailer with NUL": (ask(TE, chunked(BODY) + b"0\r\nx: \0\r\n\r\n"), 400),
    # who is asked, and in which language
    "two hosts": (ask(SIZED, BODY, host=b"host: localhost\r\nhost: evil\r\n"), 400),
    "twice the same host": (ask(SIZED, BODY, host=b"host: localhost\r\nhost: localhost\r\n"), 400),
    "no host": (ask(SIZED, BODY, host=b""), 400),
    "absolute form of another host": (ask(SIZED, BODY, first=b"POST http://evil/v1/chat/completions HTTP/1.1"), 403),
    "absolute form with a user": (ask(SIZED, BODY, first=b"POST http://localhost@evil/v1/chat/completions HTTP/1.1"), 403),
    "HTTP/0.9": (b"GET /v1/models\r\n\r\n", 505),
    "HTTP/0.9 by name": (ask(SIZED, BODY, first=b"POST /v1/chat/completions HTTP/0.9"), 505),
    "HTTP/1.2": (ask(SIZED, BODY, first=b"POST /v1/chat/completions HTTP/1.2"), 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/2 by name": (ask(SIZED, BODY, first=b"POST /v1/chat/completions HTTP/2"), 400),
    "small letters": (ask(SIZED, BODY, first=b"post /v1/chat/completions HTTP/1.1"), 400),
    "tab in the first line": (ask(SIZED, BODY, first=b"POST\t/v1/chat/completions HTTP/1.1"), 400),
    "CONNECT": (ask(SIZED, BODY, first=b"CONNECT localhost:80 HTTP/1.1"), 405),
    "another expectation": (ask(b"expect: 200-ok\r\n" + SIZED, BODY), 417),
    "two expectations": (ask(b"expect: 100-continue, x\r\n" + SIZED, BODY), 417),
}  # fmt: skip


async def test_a_request_that_can_be_read_in_two_ways_is_refused() -> None:
    got: dict[str, int] = {}
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane:
            for name, (request, _) in REFUSED.items():
                async with client_of(plane) as client:
                    await client.send(request + HIDDEN)
                    answer = await client.answer()
                    assert answer.complete, name
                    assert answer.error["message"], name
                    assert answer.headers["connection"] == "close", name
                    assert await client.closed() == b"", f"{name}: nothing answers what was hidden"
                    got[name] = answer.status
    assert got == {name: status for name, (_, status) in REFUSED.items()}
    assert not scheduler.asks
    assert not engine.talks


SERVED = {
    "one length": ask(SIZED, BODY),
    "chunks": ask(TE, ONCE),
    "chunks with extensions": ask(TE, b"%x;a=b;c=\"d\"\r\n%b\r\n0;e\r\n\r\n" % (len(BODY), BODY)),
    "zeros before a chunk size": ask(TE, b"0000%x\r\n%b\r\n0000\r\n\r\n" % (len(BODY), BODY)),
    "trailers": ask(TE, chunked(BODY) + b"0\r\nx-request-id: hidden\r\nx-luftpause-run-id: hidden\r\n\r\n"),
    "coding in capitals": ask(b"Transfer-Encoding: CHUNKED\r\n", ONCE),
    "spaces before the coding": ask(b"transfer-encoding: \t chunked\r\n", ONCE),
    "coding that is none": ask(b"transfer_encoding: chunked\r\nx-transfer-encoding: chunked\r\n" + SIZED, BODY),
    "zeros before the length": ask(b"content-length: 000%d\r\n" % len(BODY), BODY),
    "a value that is no ASCII": ask(b"user-agent: \xff\xc3\xbc\r\n" + SIZED, BODY),
    "an offer of HTTP/2": ask(b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n" + SIZED, BODY),
    "an offer of a web socket": ask(b"connection: upgrade\r\nupgrade: websocket\r\n" + TE, ONCE),
    "absolute form": ask(SIZED, BODY, first=b"POST http://localhost/v1/chat/completions HTTP/1.1", host=b"host: evil\r\n"),
    "several spaces in the first line": ask(SIZED, BODY, first=b"POST  /v1/chat/completions  HTTP/1.1"),
    "empty lines before": b"\r\n\r\n" + ask(SIZED, BODY),
    "an expectation, and the body at once": ask(b"Expect: 100-Continue\r\n" + SIZED, BODY),
    "HTTP/1.0 with chunks": ask(TE, ONCE, first=b"POST /v1/chat/completions HTTP/1.0"),
    "a close": ask(b"connection: close\r\n" + SIZED, BODY),
    "garbage behind": ask(SIZED, BODY + b"\0\xff \r\n"),
    "CONNECT behind": ask(SIZED, BODY + b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n"),
    "names of ours among those of the connection": ask(b"connection: host, content-length, transfer-encoding\r\n" + SIZED, BODY),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
async def test_a_request_that_is_served_goes_on_in_one_framing_and_alone(name: str) -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(SERVED[name] + HIDDEN)
            answer = await client.answer()
            assert (answer.status, answer.body, answer.complete) == (200, GOOD, True)
            assert await client.closed() == b"", "nothing answers what was hidden"
    (talk,) = engine.talks
    assert talk.body == BODY
    lines = talk.head.lower().split(b"\r\n")
    names = [line.partition(b":")[0] for line in lines[1:] if line]
    assert lines[0] == b"post /v1/chat/completions http/1.1"
    assert sorted(set(names) - {b"user-agent"}) == [b"accept-encoding", b"content-length", b"content-type", b"host"]
    assert len(set(names)) == len(names)
    assert scheduler.asks[scheduler.only].model == "m"
    assert not scheduler.asks[scheduler.only].run


@pytest.mark.parametrize("inside", [HIDDEN, b"0\r\n\r\n" + HIDDEN, b"\r\n\r\n" + HIDDEN])
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_request_inside_a_body_stays_there(inside: bytes, framing: str) -> None:
    body = BODY[:-1] + b', "x": "' + inside.replace(b'"', b"'").replace(b"\r", b"\\r").replace(b"\n", b"\\n") + b'"}' + b" " * 3
    raw = inside + body  # no JSON, but nobody may take its beginning for a request
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for each, status in ((body, 200), (raw, 400)):
                message = ask(b"content-length: %d\r\n" % len(each), each) if framing == "length" else ask(TE, chunked(each) + b"0\r\n\r\n")
                assert (await client.ask(message)).status == status
    assert [talk.body for talk in engine.talks] == [body]


# ---- answers: O06 ----------------------------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ANSWER_SIZED = b"content-length: %d\r\n" % len(GOOD)
CHUNKS = chunked(GOOD) + b"0\r\n\r\n"
EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nEVIL!"

BAD_ANSWERS = {
    "two lengths": OK + ANSWER_SIZED + b"content-length: 3\r\n\r\n" + GOOD,
    "a list of lengths": OK + b"content-length: 5, 5\r\n\r\n" + GOOD,
    "length with a plus": OK + b"content-length: +5\r\n\r\n" + GOOD,
    "negative length": OK + b"content-length: -5\r\n\r\n" + GOOD,
    "hexadecimal length": OK + b"content-length: 0x5\r\n\r\n" + GOOD,
    "length with an underscore": OK + b"content-length: 6_5\r\n\r\n" + GOOD,
    "empty length": OK + b"content-length:\r\n\r\n" + GOOD,
    "length beyond 64 bits": OK + b"content-length: 18446744073709551617\r\n\r\n" + GOOD,
    "xchunked": OK + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS,
    "identity": OK + b"transfer-encoding: identity\r\n\r\n" + GOOD,
    "gzip, chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunked, identity": OK + b"transfer-encoding: chunked, identity\r\n\r\n" + CHUNKS,
    "chunked twice": OK + TE + TE + b"\r\n" + CHUNKS,
    "space before the colon": OK + b"transfer-encoding : chunked\r\n\r\n" + CHUNKS,
    "folded line": OK + b"x: y\r\n z\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "bare LF": OK + b"x: y\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "bare CR": OK + b"x: y\rz: w\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "NUL in a value": OK + b"x: \0\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "a name that is no ASCII": OK + b"x\xff: y\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "no colon": OK + b"x\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "CR in its phrase": b"HTTP/1.1 200 O\rK\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "HTTP/0.9": GOOD + b"\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "status of four digits": b"HTTP/1.1 2000 OK\r\n" + ANSWER_SIZED + b"\r\n" + GOOD,
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "negative chunk": OK + TE + b"\r\n-5\r\nhello\r\n0\r\n\r\n",
    "chunk with a plus": OK + TE + b"\r\n+5\r\nhello\r\n0\r\n\r\n",
    "chunk with 0x": OK + TE + b"\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "chunk with an underscore": OK + TE + b"\r\n1_0\r\nhello\r\n0\r\n\r\n",
    "chunk with a space before": OK + TE + b"\r\n 5\r\nhello\r\n0\r\n\r\n",
    "chunk beyond 64 bits": OK + TE + b"\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    "chunk size ends in LF": OK + TE + b"\r\n5\nhello\r\n0\r\n\r\n",
    "LF in a chunk extension": OK + TE + b"\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "huge chunk extension": OK + TE + b"\r\n5;" + b"a" * 9000 + b"\r\nhello\r\n0\r\n\r\n",
}  # fmt: skip


async def test_an_answer_that_can_be_read_in_two_ways_is_502() -> None:
    async def behave(talk: Talk) -> None:
        name = talk.header("x-request-id")
        await talk.send(BAD_ANSWERS[name] + EVIL if name else json_answer(GOOD))

    got: dict[str, tuple[int, str]] = {}
    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, failover=False) as plane, client_of(plane) as client:
            for name in BAD_ANSWERS:
                answer = await client.ask(post(x_request_id=name))
                got[name] = (answer.status, json.loads(answer.body).get("error", {}).get("code", ""))
                assert (await client.ask(post())).body == GOOD, f"after {name}"
    assert got == dict.fromkeys(BAD_ANSWERS, (502, "engine_failed"))
    assert b"EVIL" not in client.raw
    assert engine.connections == len(BAD_ANSWERS) + 1, "what said such a thing is asked no more"


BROKEN_ANSWERS = {
    "second chunk is negative": chunked(GOOD) + b"-5\r\nhello\r\n0\r\n\r\n",
    "chunk longer than it says": b"5\r\nhello!!!!\r\n0\r\n\r\n",
    "chunk ends in LF": b"5\r\nhello\n0\r\n\r\n",
    "last chunk ends in LF": chunked(GOOD) + b"0\n\n",
    "trailer ends in LF": chunked(GOOD) + b"0\r\nx: y\n\r\n",
    "trailer folded": chunked(GOOD) + b"0\r\nx: y\r\n z\r\n\r\n",
    "trailer with a length": chunked(GOOD) + b"0\r\nContent-Length: 3\r\n\r\n",
    "trailer with a coding": chunked(GOOD) + b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "trailer with a name of ours": chunked(GOOD) + b"0\r\nX-Luftpause-Run-Id: forged\r\n\r\n",
    "trailer with a name of ours in another spelling": chunked(GOOD) + b"0\r\nX_Luftpause_Run_Id: forged\r\n\r\n",
    "endless trailers": chunked(GOOD) + b"0\r\n" + b"x: y\r\n" * 3000 + b"\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_ANSWERS)
async def test_an_answer_whose_framing_breaks_after_its_head_is_a_broken_transfer(name: str) -> None:
    async def behave(talk: Talk) -> None:
        if len(engine.talks) > 1:
            await talk.send(json_answer(GOOD))
        else:
            await talk.send(OK + TE + b"\r\n", BROKEN_ANSWERS[name][:5], BROKEN_ANSWERS[name][5:] + EVIL)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client, client_of(plane) as other:
            await client.send(post())
            await client.closed()
            assert (await other.ask(post())).body == GOOD
    assert client.raw.startswith(b"HTTP/1.1 200 OK\r\n") or b" 502 " in client.raw
    assert b"EVIL" not in client.raw
    assert not client.raw.endswith(b"0\r\n\r\n")
    assert scheduler.last("failed")[2] == "engine_died"


GOOD_ANSWERS = {
    "length and coding": (OK + ANSWER_SIZED + TE + b"\r\n" + CHUNKS, False),
    "length 0 and coding": (OK + b"content-length: 0\r\n" + TE + b"\r\n" + CHUNKS, False),
    "coding in capitals": (OK + b"Transfer-Encoding: CHUNKED\r\n\r\n" + CHUNKS, False),
    "chunks with extensions": (OK + TE + b"\r\n%x;a=b\r\n%b\r\n0;c\r\n\r\n" % (len(GOOD), GOOD), False),
    "trailers": (OK + TE + b"\r\n" + chunked(GOOD) + b"0\r\nx-t: v\r\n\r\n", False),
    "an offer of HTTP/2": (OK + b"upgrade: h2c\r\nconnection: upgrade, keep-alive\r\n" + ANSWER_SIZED + b"\r\n" + GOOD, False),
    "until the end of the connection": (OK + b"\r\n" + GOOD, True),
    "HTTP/1.0 with a length": (OK.replace(b"1.1", b"1.0") + ANSWER_SIZED + b"\r\n" + GOOD, True),
    "NUL in its phrase": (OK.replace(b"OK", b"O\0K") + ANSWER_SIZED + b"\r\n" + GOOD, False),
    "two answers": (json_answer(GOOD) + EVIL, False),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD_ANSWERS)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_an_answer_goes_on_in_one_framing_and_alone(name: str, version: str) -> None:
    whole, closes = GOOD_ANSWERS[name]

    async def behave(talk: Talk) -> None:
        await talk.send(whole)
        if closes:
            talk.writer.close()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane:
            for _ in range(2):
                async with client_of(plane) as client:
                    raw = await answered_alone(client, version)
                    assert (b"\r\n0\r\nx-t: v\r\n\r\n" in raw) is (name == "trailers" and version == "1.1"), (
                        "HTTP/1.0 has no place for them"
                    )
    assert scheduler.told(next(iter(scheduler.asks))) == ["ask", "started", "finished"]


async def answered_alone(client: Client, version: str) -> bytes:
    await client.send(post(version=version, connection="close"))
    raw = await client.closed()
    head, _, body = raw.partition(b"\r\n\r\n")
    names = [line.partition(b":")[0] for line in head.lower().split(b"\r\n")]
    framings = names.count(b"content-length") + names.count(b"transfer-encoding")
    assert framings == 1 or (version == "1.0" and framings == 0)
    assert not {b"upgrade", b"keep-alive", b"trailer"} & set(names)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert GOOD in body
    assert b"EVIL" not in raw
    return raw
