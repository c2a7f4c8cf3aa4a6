"""However a client behaves towards the real thing: does it get what it should, and is nothing left of it anywhere?

Real processes: dataplane, scheduler, engine. After each behaviour no engine works for it, no turn is counted, no connection is left.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Generator

import pytest

from tests.integration.dataplane.world import FLOOD, LONG, MUCH_BYTES, World, body_of, world
from tests.support.plane import Client, get, post

TWENTY_MB = 20_000_000
HALF_SECOND = 0.5
PARTS = 40
BIG = body_of("x" * TWENTY_MB, "digest", stream=False)
DIGEST = hashlib.sha256(BIG).hexdigest()
CHUNKED_HEAD = post(b"", content_length="").replace(b"content-length: \r\n", b"transfer-encoding: chunked\r\n")

Behaviour = Callable[[World, Client], Awaitable[str]]


@pytest.fixture(scope="module")
def runner() -> Generator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@pytest.fixture(scope="module")
def there(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    made = world(tmp_path_factory.mktemp("behaviours"))
    yield runner.run(made.__aenter__())
    runner.run(made.__aexit__(None, None, None))


async def status_of(client: Client, method: str = "POST") -> str:
    """Status and whether the whole answer came."""
    answer = await client.answer(method)
    return f"{answer.status}" if answer.complete else f"{answer.status} cut"


async def end_of(client: Client, method: str = "POST") -> str:
    """The same, and then the other side closes."""
    said = await status_of(client, method)
    assert await client.closed() == b""
    return f"{said}, closed"


# ---- leaving ---------------------------------------------------------------------------------------------------------


def leaves_while_held(how: str) -> Behaviour:
    async def behave(there: World, client: Client) -> str:
        async with there.full():
            await client.send(post(body_of()))
            await there.held(1)
            getattr(client, how)()
            await there.held(0)
        return "gone"

    return behave


def leaves_at_once(how: str) -> Behaviour:
    async def behave(there: World, client: Client) -> str:
        await client.send(post(LONG))
        getattr(client, how)()
        return "gone"

    return behave


def leaves_before_the_head(how: str) -> Behaviour:
    async def behave(there: World, client: Client) -> str:
        await there.stalls(0)
        await client.send(post(LONG))
        await there.in_work(1)
        getattr(client, how)()
        return "gone"

    return behave


def leaves_after_the_head(how: str) -> Behaviour:
    """The engine has fallen silent, so that no write can show that nobody is there."""

    async def behave(there: World, client: Client) -> str:
        await there.stalls(1)
        await client.send(post(LONG))
        await client.until(b"data: ")
        getattr(client, how)()
        return "gone"

    return behave


def leaves_in_mid_stream(how: str) -> Behaviour:
    async def behave(there: World, client: Client) -> str:
        await client.send(post(LONG))
        while client.raw.count(b"data: ") < 20:
            client.raw += await client.reader.read(65_536)
        getattr(client, how)()
        return "gone"

    return behave


async def half_closes_and_reads_on(there: World, client: Client) -> str:
    async with there.full():
        await client.send(post(body_of()))
        client.half_close()
        await there.held(1)
        await asyncio.sleep(HALF_SECOND)  # two sweeps, in which it must not be taken for gone
    return await end_of(client)


async def half_closes_and_is_gone(there: World, client: Client) -> str:
    async with there.full():
        await client.send(post(body_of()))
        client.half_close()
        await there.held(1)
        await asyncio.sleep(HALF_SECOND / 2)  # first the one, then the other
        client.close()
        await there.held(0)
    return "gone"


async def half_closes_and_waits_for_ever(there: World, client: Client) -> str:
    async with there.full():
        await client.send(post(body_of()))
        client.half_close()
        await there.held(1)
        await there.held(0)
    return "dropped"


# ---- reading ---------------------------------------------------------------------------------------------------------


async def stops_reading(there: World, client: Client) -> str:
    client.writer.transport.pause_reading()
    await client.send(post(body_of(model="flood")))
    async with asyncio.timeout(60):
        while not (there.raw.talks and b'"flood"' in there.raw.talks[-1].body[:100]):
            await asyncio.sleep(0.02)  # until the engine floods
        await there.raw.talks[-1].gone.wait()
    client.writer.transport.abort()
    return "dropped"


async def reads_slowly(there: World, client: Client) -> str:
    """It takes its time for as many bytes as no buffer holds, but it takes them."""
    client.writer.transport.pause_reading()
    await client.send(post(body_of(model="flood")))
    sock = client.writer.transport.get_extra_info("socket")
    read = 0
    while read < 100 * len(FLOOD):
        client.writer.transport.resume_reading()
        read += len(await client.reader.read(3 * len(FLOOD)))
        client.writer.transport.pause_reading()
        await asyncio.sleep(0.01)  # its pace
    assert sock.fileno() >= 0
    client.close()
    return "served"


async def reads_one_byte_at_a_time(there: World, client: Client) -> str:
    await client.send(post(body_of()))
    raw = bytearray()
    while not raw.endswith(b"0\r\n\r\n"):
        raw += await client.reader.readexactly(1)
    return "200" if raw.startswith(b"HTTP/1.1 200") and b"[DONE]" in raw else str(bytes(raw[:40]))


# ---- bodies ----------------------------------------------------------------------------------------------------------


async def digest_of(client: Client) -> str:
    answer = await client.answer(seconds=60)
    return "unchanged" if answer.status == 200 and json.loads(answer.body)["sha256"] == DIGEST else f"{answer.status} {answer.body[:200]!r}"


async def sends_20_mb(there: World, client: Client) -> str:
    await client.send(post(BIG))
    return await digest_of(client)


async def sends_20_mb_slowly(there: World, client: Client) -> str:
    whole, step = post(BIG), TWENTY_MB // PARTS
    for at in range(0, len(whole), step):
        await client.send(whole[at : at + step])
        await asyncio.sleep(0.01)  # its pace
    return await digest_of(client)


async def sends_20_mb_in_chunks(there: World, client: Client) -> str:
    await client.send(CHUNKED_HEAD)
    for at in range(0, len(BIG), 70_000):
        part = BIG[at : at + 70_000]
        await client.send(b"%x\r\n%b\r\n" % (len(part), part))
    await client.send(b"0\r\n\r\n")
    return await digest_of(client)


def sends(*parts: bytes, method: str = "POST", closes: bool = True) -> Behaviour:
    async def behave(there: World, client: Client) -> str:
        for part in parts:
            await client.send(part)
        return await (end_of if closes else status_of)(client, method)

    return behave


async def expects_to_continue(there: World, client: Client) -> str:
    await client.send(post(body_of(), expect="100-continue").removesuffix(body_of()))
    await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
    await client.send(body_of())
    await client.until(b"0\r\n\r\n")
    return "continue, 200" if b"HTTP/1.1 200 " in client.raw else bytes(client.raw[:80]).decode()


async def one_turn_after_the_other(there: World, client: Client) -> str:
    got = [await status_of(client) for _ in range(20) if not await client.send(post(body_of()))]
    return f"{got.count('200')} times 200"


async def pipelines(there: World, client: Client) -> str:
    await client.send(post(body_of()) + post(LONG))
    return await end_of(client)


WHOLE = body_of()
BEHAVIOURS: dict[str, tuple[Behaviour, str]] = {
    "leaves while held": (leaves_while_held("close"), "gone"),
    "resets while held": (leaves_while_held("reset"), "gone"),
    "leaves before it is placed": (leaves_at_once("close"), "gone"),
    "resets before it is placed": (leaves_at_once("reset"), "gone"),
    "leaves after it was placed, before the head": (leaves_before_the_head("close"), "gone"),
    "resets after it was placed, before the head": (leaves_before_the_head("reset"), "gone"),
    "leaves after the head": (leaves_after_the_head("close"), "gone"),
    "resets after the head": (leaves_after_the_head("reset"), "gone"),
    "leaves in mid-stream (O04)": (leaves_in_mid_stream("close"), "gone"),
    "resets in mid-stream (O04)": (leaves_in_mid_stream("reset"), "gone"),
    "closes its side and reads on (O04)": (half_closes_and_reads_on, "200, closed"),
    "closes its side and is gone": (half_closes_and_is_gone, "gone"),
    "closes its side and says no more": (half_closes_and_waits_for_ever, "dropped"),
    "stops reading": (stops_reading, "dropped"),
    "reads slowly": (reads_slowly, "served"),
    "reads one byte at a time": (reads_one_byte_at_a_time, "200"),
    "20 MB": (sends_20_mb, "unchanged"),
    "20 MB, slowly": (sends_20_mb_slowly, "unchanged"),
    "20 MB in chunks": (sends_20_mb_in_chunks, "unchanged"),
    "never completes its head": (sends(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"), "408, closed"),
    "never completes its body": (sends(post(WHOLE)[:-5]), "408, closed"),
    "says a length that is too long": (sends(post(WHOLE, content_length="5000")), "408, closed"),
    "says a length that is too short": (sends(post(WHOLE, content_length=str(len(WHOLE) - 5))), "400, closed"),
    "chunks": (sends(CHUNKED_HEAD, b"%x\r\n%b\r\n" % (len(WHOLE), WHOLE), b"0\r\n\r\n", closes=False), "200"),
    "expects to be told to go on": (expects_to_continue, "continue, 200"),
    "200 header lines": (sends(post(WHOLE, **{f"x_{n}": "y" for n in range(200)})), "431, closed"),
    "a head of 100 kB": (sends(post(WHOLE, x="y" * 100_000)), "431, closed"),
    "sends a second turn before the answer": (pipelines, "200, closed"),
    "20 turns on one connection": (one_turn_after_the_other, "20 times 200"),
    "connection: close": (sends(post(WHOLE, connection="close")), "200, closed"),
    "HTTP/1.0": (sends(post(WHOLE, version="1.0")), "200, closed"),
    "HEAD": (sends(get("/v1/chat/completions", "HEAD"), method="HEAD", closes=False), "405"),
    "a wrong method": (sends(get("/v1/chat/completions", "PUT"), closes=False), "405"),
    "TLS": (sends(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)), "400, closed"),
    "garbage": (sends(bytes(range(128, 256)) * 8), "400, closed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_client_gets_its_end_and_leaves_nothing_behind(name: str, there: World, runner: asyncio.Runner) -> None:
    behave, expected = BEHAVIOURS[name]

    async def run() -> None:
        client = await there.client()
        try:
            assert await behave(there, client) == expected
        finally:
            client.writer.transport.abort()
        await there.nothing_left()

    runner.run(run())


@pytest.mark.parametrize("what", ["events", "one event without an end"])
def test_a_long_stream_takes_no_memory(what: str, there: World, runner: asyncio.Runner) -> None:
    """O09. 128 MiB; an event that is too long is given up, and the turn's usage is unknown."""

    async def run() -> None:
        client, before = await there.client(), there.rss_bytes_max()
        await client.send(post(body_of(what, "much")))
        read, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            data = await client.reader.read(2**20)
            assert data
            read, tail = read + len(data), (tail + data)[-5:]
        client.close()
        await there.nothing_left()
        print(f"{what}: {read >> 20} MiB passed, the dataplane grew by {(there.rss_bytes_max() - before) >> 20} MiB")
        assert read > 0.9 * MUCH_BYTES
        assert there.rss_bytes_max() - before < 64 * 2**20

    runner.run(run())
