"""Where do requests for a replica's URL go?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from luftpause.dataplane import lifeline
from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.flows import Flow
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.upstream import Origin, Pool, origin_of
from luftpause.kit.config import DataplaneConfig


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://e:1", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/v1", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/v1/", Origin("e", 1, False, b"", b"e:1")),
        ("http://e/base/v1", Origin("e", 80, False, b"/base", b"e")),
        ("https://api.example.com/v1", Origin("api.example.com", 443, True, b"", b"api.example.com")),
        ("https://api.example.com:8443/x", Origin("api.example.com", 8443, True, b"/x", b"api.example.com:8443")),
        ("http://[::1]:8000", Origin("::1", 8000, False, b"", b"[::1]:8000")),
    ],
)
def test_with_or_without_v1_it_is_the_same_engine(url: str, origin: Origin) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("https://api.anthropic.com", b"x-api-key: k\r\n"),
        ("https://anthropic.com/v1", b"x-api-key: k\r\n"),
        ("https://notanthropic.com", b"authorization: Bearer k\r\n"),
        ("https://anthropic.com.example.com", b"authorization: Bearer k\r\n"),
        ("http://e:1", b"authorization: Bearer k\r\n"),
    ],
)
def test_a_key_travels_as_its_host_wants_it(url: str, line: bytes) -> None:
    assert origin_of(url).key_line("k") == line
    assert origin_of(url).key_line("") == b""


# ---- who gets a connection --------------------------------------------------------------------------------------


class Asking:
    """A receiver that notes what becomes of its request."""

    straight = None

    def __init__(self) -> None:
        self.upstream: Any = None
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def sent(self) -> None: ...

    def head(self, head: AnswerHead) -> None: ...

    def body(self, raw: bytes, payload: bytes, done: bool) -> None:
        if done:
            self.end.set_result(payload.decode())

    def unreachable(self, reason: str) -> None:
        self.end.set_result(reason)

    def broken(self, reason: str, why: str) -> None:
        self.end.set_result(why)


class Engine:
    """Answers each request with what it says, when `answers` lets it, but resets `/dies`. `connected`: so many connections came."""

    def __init__(self) -> None:
        self.answers = asyncio.Semaphore(0)
        self.connected = 0
        self.deaths = 0
        self.serving: set[asyncio.Task[Any] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        self.serving.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                said = (await reader.readuntil(b"\r\n\r\n")).split()[1]
                if said == b"/dies":
                    self.deaths += 1
                    writer.transport.abort()
                    continue
                await self.answers.acquire()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def pool_of(engine: Engine, **config: Any) -> AsyncGenerator[Pool]:
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = Pool(f"http://127.0.0.1:{port}", DataplaneConfig(**config), Sweep(), Flow())
    try:
        yield pool
    finally:
        server.close()
        async with asyncio.timeout(60):
            while pool.flow.open:
                pool.close()
                await asyncio.sleep(0)
        await asyncio.gather(*filter(None, engine.serving))


class Slow:
    """Connections are made when the test says so, one for each release of `may`, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may = asyncio.Semaphore(0)
        self._connect = asyncio.get_running_loop().create_connection
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", self)

    async def __call__(self, *args: Any, **more: Any) -> Any:
        await self.may.acquire()
        return await self._connect(*args, **more)


def request(said: str) -> bytes:
    return f"GET {said} HTTP/1.1\r\n\r\n".encode()


async def answered(*asking: Asking) -> list[str]:
    async with asyncio.timeout(60):
        return [await each.end for each in asking]


async def test_a_request_that_waits_for_its_connection_takes_the_first_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    async with pool_of(engine) as pool:
        first, second, third = Asking(), Asking(), Asking()
        pool.send(request("first"), first)
        async with asyncio.timeout(60):
            while not engine.connected:
                await asyncio.sleep(0)
        slow = Slow(monkeypatch)
        pool.send(request("second"), second)
        pool.send(request("third"), third)
        for _ in range(3):
            engine.answers.release()
        assert await answered(first, second, third) == ["first", "second", "third"]
        assert (engine.connected, pool.flow.reused, pool.flow.made) == (1, 2, 1)
        for _ in range(2):
            slow.may.release()  # what was being made meanwhile is kept
        async with asyncio.timeout(60):
            while pool.flow.made < 3:
                await asyncio.sleep(0)
        assert pool.flow.open == 3


async def test_when_its_own_connection_fails_that_took_another_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    async with pool_of(engine) as pool:
        first, second = Asking(), Asking()
        pool.send(request("first"), first)
        async with asyncio.timeout(60):
            while not engine.connected:
                await asyncio.sleep(0)

        async def refused(*_: Any, **__: Any) -> None:
            await asyncio.sleep(0)
            assert await answered(first) == ["first"]
            raise ConnectionRefusedError

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refused)
        pool.send(request("second"), second)
        for _ in range(2):
            engine.answers.release()
        assert await answered(first, second) == ["first", "second"]
        assert not pool.waiting


async def test_a_request_that_kills_its_connections_is_sent_twice_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made for its first try is there when it waits for its second one."""
    engine = Engine()
    async with pool_of(engine) as pool:
        first, deadly = Asking(), Asking()
        pool.send(request("first"), first)
        async with asyncio.timeout(60):
            while not engine.connected:
                await asyncio.sleep(0)
        slow = Slow(monkeypatch)
        pool.send(request("/dies"), deadly)
        engine.answers.release()
        async with asyncio.timeout(60):
            while not pool.flow.stale:
                await asyncio.sleep(0)
            slow.may.release()
            while pool.flow.made < 2:
                await asyncio.sleep(0)
        for _ in range(20):
            slow.may.release()
        assert await answered(first, deadly) == ["first", "engine_died"]
        assert (engine.deaths, pool.flow.stale) == (2, 1)
        assert not pool.waiting


async def test_one_that_leaves_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    async with pool_of(engine) as pool:
        Slow(monkeypatch)
        gone = Asking()
        pool.send(request("gone"), gone)
        gone.upstream.abort()
        assert not pool.waiting


async def test_a_connection_is_given_up_when_its_machine_says_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = list[float]()
    monkeypatch.setattr(lifeline, "watch", lambda _transport, seconds: watched.append(seconds))
    engine = Engine()
    engine.answers.release()
    async with pool_of(engine, engine_lost_seconds=7) as pool:
        asking = Asking()
        pool.send(request("x"), asking)
        assert await answered(asking) == ["x"]
    assert watched == [7]
