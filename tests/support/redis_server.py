"""A real redis-server for tests: on a unix socket, in memory, started and stopped by them."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import missing

PROGRAM = os.environ.get("LUFTPAUSE_TEST_REDIS", "redis-server")  # valkey-server takes the same options
START_SECONDS_MAX = 20


class RedisServer:
    """`pause` and `resume` stop it as a hung machine would; `replace` puts an empty one in its place."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.url = f"unix://{self._socket}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        program = shutil.which(PROGRAM)
        assert program is not None
        process = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no", "--dir", str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert process.poll() is None, "redis-server ended at its start"
            assert time.monotonic() < until, "redis-server doesn't answer"
            time.sleep(0.02)
        return process

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.resume()
        self._process.kill()
        self._process.wait()
        self._socket.unlink(missing_ok=True)

    def start(self) -> None:
        self._process = self._start()

    def replace(self) -> None:
        self.stop()
        self.start()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    if shutil.which(PROGRAM) is None:
        missing(PROGRAM, "apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a short path: names of sockets are limited
        server = RedisServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()
