"""Does the image's health check tell a service that is well from one that is not?"""

import importlib.util
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/docker/healthy.py"
_spec = importlib.util.spec_from_file_location("healthy", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


@contextmanager
def server(answer: bytes | None) -> Generator[tuple[int, list[bytes]]]:
    """Takes one connection and answers so; None: it stays silent until the block ends. Yields its port and the requests that came."""
    asked: list[bytes] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            conn, _ = listening.accept()
            with conn:
                if answer is None:
                    over.wait(60)
                else:
                    asked.append(conn.recv(4096))
                    conn.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], asked
        over.set()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("answer", "well"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n 200 ", False),
        (b"", False),
        (b"\x15\x03\x01\x00\x02\x02\x0a", False),
    ],
)
def test_only_a_200_is_well(answer: bytes, well: bool) -> None:
    with server(answer) as (port, asked):
        assert script.healthy(port) is well
    assert asked[0].startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:")


def test_nobody_listening_is_not_well() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not script.healthy(bound.getsockname()[1])


def test_silence_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SECONDS_MAX", 0.05)
    with server(None) as (port, _):
        assert not script.healthy(port)


def test_a_program_without_a_health_route_only_has_to_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert script.healthy(listening.getsockname()[1], "--listens")


def test_the_exit_status_is_what_docker_reads() -> None:
    with server(b"HTTP/1.1 200 OK\r\n\r\n") as (port, asked):
        assert subprocess.run([str(SCRIPT), str(port), "/ready"], check=False).returncode == 0
    assert asked[0].startswith(b"GET /ready ")
    with server(b"HTTP/1.1 503 Not yet\r\n\r\n") as (port, _):
        assert subprocess.run([str(SCRIPT), str(port)], check=False).returncode == 1
