"""The relay without sockets: a client connection and engine connections on transports that only remember what was written."""

import asyncio
from typing import Any

import pytest

from luftpause.dataplane.connection import Connection, Receiver
from luftpause.dataplane.door import Door
from luftpause.dataplane.http import Conn, protocol_of
from luftpause.dataplane.relay import Relay
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.turns import Scheduler
from luftpause.dataplane.upstream import Pool
from luftpause.kit.config import DataplaneConfig


class FakeSocket:
    def __init__(self) -> None:
        self.gone = 0  # what SO_ERROR says

    def getsockopt(self, *_: int) -> int:
        return self.gone

    def setsockopt(self, *_: Any) -> None:
        """SO_LINGER: the abort that follows is what is looked at."""


class FakeTransport:
    """`lost` is how it ended: "" not yet, "closed" in order, "aborted"."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self.written = bytearray()
        self.lost = ""
        self.eof = False
        self.reading = True
        self.socket = FakeSocket()
        self._told = False

    def write(self, data: bytes) -> None:
        if not self.lost:
            self.written += data

    def write_eof(self) -> None:
        self.eof = True

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def is_closing(self) -> bool:
        return bool(self.lost)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return self.socket if name == "socket" else None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def _end(self, how: str) -> None:
        if not self.lost:
            self.lost = how
            asyncio.get_running_loop().call_soon(self.tell, None)

    def tell(self, error: Exception | None) -> None:
        """connection_lost, once."""
        if not self._told:
            self._told = True
            self.lost = self.lost or "aborted"
            self.protocol.connection_lost(error)

    # ---- the other side

    def receives(self, data: bytes) -> bool:
        """Bytes come from the other side; False if nobody reads them now."""
        if self.lost or not self.reading:
            return False
        self.protocol.data_received(data)
        return True

    def peer_closes(self, error: Exception | None = None) -> None:
        """FIN, or RST where an error is given."""
        if self.lost:
            return
        if error is None and self.protocol.eof_received():
            return
        self.tell(error)


class _State:
    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[Any] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []


class _Config:
    loaded_app = None


class Rig:
    """Needs a running loop. New engine connections wait in `connecting` until the test makes them or refuses them."""

    def __init__(self, scheduler: Scheduler, **config: Any) -> None:
        self.sweep = Sweep()
        self.relay = Relay(DataplaneConfig(**config), scheduler, self.sweep, b"key")
        self.door = Door(self.relay.config, self.sweep, self.relay.routes(), lambda _: frozenset(), self.relay.stored.methods)
        self._class = protocol_of(self.door)
        self.connecting: list[FakeConnecting] = []
        self.engines: list[FakeTransport] = []

    def client(self) -> FakeTransport:
        conn: Conn = self._class(_Config(), _State(), {}, asyncio.get_running_loop())  # pyright: ignore[reportArgumentType]
        transport = FakeTransport(conn)
        conn.connection_made(transport)  # pyright: ignore[reportArgumentType]
        return transport

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> "Rig":
        def connect(pool: Pool, out: bytes, receiver: Receiver) -> None:
            self.connecting.append(FakeConnecting(self, pool, out, receiver))

        monkeypatch.setattr(Pool, "connect", connect)
        return self


class FakeConnecting:
    """Stands for `upstream.Connecting`."""

    def __init__(self, rig: Rig, pool: Pool, out: bytes, receiver: Receiver) -> None:
        self._rig, self._pool, self._out = rig, pool, out
        self._receiver: Receiver | None = receiver
        self.last_read = 0.0
        receiver.upstream = self  # type: ignore[assignment]

    def abort(self) -> None:
        self._receiver = None

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def made(self) -> FakeTransport | None:
        self._rig.connecting.remove(self)
        if self._receiver is None:
            return None
        connection = Connection(self._pool)
        transport = FakeTransport(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        self._rig.engines.append(transport)
        connection.send(self._out, self._receiver)
        return transport

    def refused(self) -> None:
        self._rig.connecting.remove(self)
        if self._receiver is not None:
            self._receiver.unreachable("connection refused")
