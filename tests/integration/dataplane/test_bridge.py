"""Does any ASGI app answer through the bridge, and does uvicorn treat `Conn` as one of its own?"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from luftpause.dataplane.app import Server
from luftpause.dataplane.door import Door
from luftpause.dataplane.http import Conn, protocol_of
from luftpause.dataplane.sweep import Sweep
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.serve import listen, url_of
from tests.support.plane import Client, get


@contextlib.asynccontextmanager
async def serving(app: Any, **config: Any) -> AsyncGenerator[Client]:
    sweep = Sweep()
    sweep.start()
    door = Door(DataplaneConfig(**config), sweep, {}, lambda path: frozenset({"GET", "POST"}))
    server = Server(uvicorn.Config(app, http=protocol_of(door), lifespan="off", log_config=None))
    sock = listen("127.0.0.1", 0, option="x")
    task = asyncio.create_task(server.serve([sock]))
    await server.listening.wait()
    client = await Client.to(url_of(sock))
    try:
        yield client
    finally:
        client.writer.transport.abort()
        server.leave()
        await asyncio.wait_for(task, 60)
        sweep.stop()


def post(path: str, body: bytes, version: str = "1.1") -> bytes:
    return f"POST {path} HTTP/{version}\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({
        "type": "http.response.start",
        "status": 201,
        "headers": [(b"X-Query", scope["query_string"]), (b"x-path", scope["path"].encode())],
    })
    await send({"type": "http.response.body", "body": body[:2], "more_body": True})
    await send({"type": "http.response.body", "body": body[2:]})


async def test_uvicorn_constructs_connections_as_it_does_its_own() -> None:
    assert list(inspect.signature(Conn.__init__).parameters) == list(inspect.signature(HttpToolsProtocol.__init__).parameters)
    for name in ("connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing", "shutdown"):
        assert callable(getattr(Conn, name))
        assert callable(getattr(HttpToolsProtocol, name))


async def test_bodies_queries_and_streamed_answers() -> None:
    async with serving(echo) as client:
        for body in (b"", b"a", b"hello" * 50_000):
            answer = await client.ask(post("/x%20y?a=b%20c", body))
            assert (answer.status, answer.body, answer.complete) == (201, body, True)
            assert answer.headers["transfer-encoding"] == "chunked"
            assert answer.headers["x-query"] == "a=b%20c"
            assert answer.headers["x-path"] == "/x y"


async def test_an_http_1_0_client_gets_a_close() -> None:
    async with serving(echo) as client:
        await client.send(post("/", b"hello", "1.0"))
        head, _, body = (await client.closed()).partition(b"\r\n\r\n")
    assert body == b"hello"
    assert b"connection: close" in head


async def test_an_exception_is_a_500_as_json() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("secret detail")

    async with serving(fails) as client:
        answer = await client.ask(get("/"))
        assert (answer.status, answer.error["code"]) == (500, "internal")
        assert b"secret" not in answer.body
        assert (await client.ask(get("/"))).status == 500, "the connection goes on"


@pytest.mark.parametrize("way", ["raises", "returns"])
async def test_an_app_that_stops_in_mid_answer_breaks_the_transfer(way: str) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        if way == "raises":
            raise RuntimeError

    async with serving(fails) as client:
        answer = await client.ask(get("/"))
    assert (answer.body, answer.complete) == (b"part", False)


async def test_an_app_learns_that_its_client_left() -> None:
    left = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with serving(waits) as client:
        await client.send(get("/"))
        await client.until(b"200 OK")
        client.reset()
        await asyncio.wait_for(left.wait(), 60)


async def test_an_app_waits_for_a_client_that_reads_slowly() -> None:
    sent = 0

    async def much(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500):
            await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
            sent += 1
        await send({"type": "http.response.body", "body": b""})

    async with serving(much) as client:
        client.writer.transport.pause_reading()
        await client.send(get("/"))
        before = -1
        async with asyncio.timeout(60):
            while before != sent or not sent:
                before = sent
                await asyncio.sleep(0.3)
        assert 0 < sent < 400
        client.writer.transport.resume_reading()
        answer = await client.answer("GET", seconds=60)
    assert (answer.complete, len(answer.body)) == (True, 500 * 60_000)
