"""Does a turn reach an engine over TLS, and only one whose certificate is good?"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from luftpause.dataplane import upstream
from tests.support.certificates import Certificates, certificates
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import STREAM_BODY, client_of, post, running_plane
from tests.support.raw_engine import Talk, raw_engine

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
CLOSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Certificates]:
    """Certificates that the dataplane trusts as its user says so: by SSL_CERT_FILE."""
    made = certificates(tmp_path / "own")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    upstream.tls_context.cache_clear()
    yield made
    upstream.tls_context.cache_clear()


def serving(made: Certificates, asked: list[str | None] | None = None) -> ssl.SSLContext:
    """An engine's side; `asked` gets the names that clients ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    if asked is not None:
        context.sni_callback = lambda _socket, name, _context: asked.append(name)
    return context


async def streams(talk: Talk) -> None:
    await talk.stream(TEXT, b"data: [DONE]\n\n")


async def test_an_engine_over_tls_is_served_on_one_connection(own: Certificates) -> None:
    async with raw_engine(streams, tls=serving(own)) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, api_key="k"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(3):
                answer = await client.ask(post(STREAM_BODY))
                assert (answer.status, answer.body) == (200, TEXT + b"data: [DONE]\n\n")
    assert engine.connections == 1
    assert engine.talks[0].header("authorization") == "Bearer k"


async def test_the_host_of_the_url_is_asked_for_by_its_name(own: Certificates) -> None:
    asked: list[str | None] = []
    async with raw_engine(streams, tls=serving(own, asked)) as engine:
        url = engine.url.replace("127.0.0.1", "localhost")
        async with running_plane(FakeScheduler(replica("a", url))) as plane, client_of(plane) as client:
            assert (await client.ask(post(STREAM_BODY))).status == 200
    assert asked == ["localhost"]
    assert engine.talks[0].header("host") == url.removeprefix("https://")


@pytest.mark.parametrize("wrong", ["authority", "name"])
async def test_a_certificate_that_is_not_good_is_refused_before_the_key_is_sent(wrong: str, own: Certificates, tmp_path: Path) -> None:
    """Of an authority that nobody named, and a good one for another host (127.0.0.2)."""
    shown = certificates(tmp_path / "other") if wrong == "authority" else own
    async with raw_engine(streams, host="127.0.0.2" if wrong == "name" else "127.0.0.1", tls=serving(shown)) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, api_key="k"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert answer.status == 502
    assert answer.error["message"].startswith("engine a: TLS failed (CERTIFICATE_VERIFY_FAILED")
    assert not engine.talks


async def test_without_a_word_of_the_user_only_the_systems_authorities_are_trusted(
    own: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with raw_engine(streams, tls=serving(own)) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(STREAM_BODY))).status == 502
    assert not engine.talks


@pytest.mark.parametrize("orderly", [True, False])
async def test_an_answer_that_the_connections_end_ends_is_whole_only_where_tls_says_so(orderly: bool, own: Certificates) -> None:
    """Anybody on the way can send a FIN; `close_notify` only the engine."""

    async def behave(talk: Talk) -> None:
        await talk.send(CLOSE_HEAD + TEXT)
        if orderly:
            talk.writer.close()
        else:
            with socket.socket(fileno=os.dup(talk.writer.get_extra_info("socket").fileno())) as below:
                below.shutdown(socket.SHUT_WR)
            await talk.gone.wait()

    async with raw_engine(behave, tls=serving(own)) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
            await scheduler.all_over()
    assert (answer.status, answer.body, answer.complete) == (200, TEXT, orderly)
    assert scheduler.told()[-1] == ("finished" if orderly else "failed")


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_who_accepts_and_says_nothing_has_no_more_time_than_a_connection(scheme: str) -> None:
    """A handshake belongs to the connection; an HTTP engine that is silent has `first_byte_seconds`."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    limits = {"connect_seconds": 0.3, "first_byte_seconds": 0.6}
    async with server, running_plane(FakeScheduler(replica("a", url)), **limits) as plane, client_of(plane) as client:
        began = time.monotonic()
        answer = await client.ask(post(STREAM_BODY))
        took = time.monotonic() - began
        for writer in writers:
            writer.transport.abort()
    expected = (502, "no connection within 0.3 s") if scheme == "https" else (504, "did not answer within 0.6 s")
    assert (answer.status, answer.error["message"]) == (expected[0], f"engine a: {expected[1]}")
    assert took < 5
