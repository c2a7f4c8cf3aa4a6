"""Which connection takes a request to an engine: an idle one, or a new one?"""

import asyncio
import functools
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from luftpause.dataplane import lifeline
from luftpause.dataplane.answer_head import Heads
from luftpause.dataplane.connection import Connection, Receiver
from luftpause.dataplane.flows import Flow, Flows
from luftpause.dataplane.reach import connect
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.turns import Replica
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.logs import Log
from luftpause.kit.urls import has_version

LOG: Final = Log("dataplane")
URLS_CACHED: Final = 1024
CHUNK_BYTES_KNOWN_MAX: Final = 4096  # there are no more different ones
SIZE_LINE_BYTES_MAX: Final = 16
CRLF: Final = b"\r\n"
ANTHROPIC: Final = ".anthropic.com"  # takes keys in a header of its own only
ANTHROPIC_KEY: Final = b"x-api-key: %b\r\n"
BEARER_KEY: Final = b"authorization: Bearer %b\r\n"


class Origin(Struct, frozen=True):
    """Where an engine listens. `prefix` is the path of its base URL, without a slash at its end."""

    host: str
    port: int
    tls: bool
    prefix: bytes
    host_header: bytes
    key_header: bytes = BEARER_KEY  # a format string for the replica's own key
    versioned: bool = False  # the prefix ends with a version, which stands in the place of /v1

    def at(self, target: bytes) -> bytes:
        """The target of a request for `target`, as clients name it."""
        return self.prefix + (target.removeprefix(b"/v1") if self.versioned else target)

    def key_line(self, api_key: str) -> bytes:
        """The header line with the replica's own key; empty: it has none."""
        return self.key_header % api_key.encode() if api_key else b""


@functools.lru_cache(maxsize=URLS_CACHED)
def origin_of(url: str) -> Origin:
    """Read a replica's URL; `/v1` at its end is the API's, not the prefix's."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    host, usual = parts.hostname or "", 443 if tls else 80
    port = parts.port or usual
    named = f"[{host}]" if ":" in host else host
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    key_header = ANTHROPIC_KEY if f".{host}".endswith(ANTHROPIC) else BEARER_KEY
    return Origin(
        host, port, tls, prefix.encode(), (named if port == usual else f"{named}:{port}").encode(), key_header, has_version(prefix)
    )


class Connecting:
    """A connection that is being made for a request, which takes another one if that becomes free before and it is not `picky`."""

    __slots__ = ("_out", "_pool", "_receiver", "_task", "deadline", "last_read")

    def __init__(self, pool: "Pool", out: bytes, receiver: Receiver, *, picky: bool = False) -> None:
        self._pool = pool
        self._out = out
        self._receiver: Receiver | None = receiver
        self.last_read = pool.sweep.now
        self.deadline = pool.sweep.now + pool.config.connect_seconds
        receiver.upstream = self
        loop = asyncio.get_running_loop()
        origin = pool.origin
        self._task = loop.create_task(connect(lambda: pool.protocol(pool), origin.host, origin.port, pool.tls))
        self._task.add_done_callback(self._made)
        if not picky:
            pool.waiting[self] = None
        pool.sweep.watch(self)

    def abort(self) -> None:
        self._receiver = None
        self._pool.waiting.pop(self, None)
        self._pool.sweep.forget(self)
        self._task.cancel()

    def leave_to(self, connection: Connection) -> None:
        """Its request goes there; the connection that is being made is for another one."""
        receiver, self._receiver = self._receiver, None
        del self._pool.waiting[self]
        if receiver is not None:
            connection.send(self._out, receiver)

    def pause(self) -> None:
        """Nothing is read yet."""

    def resume(self) -> None:
        """Nothing was paused."""

    def expire(self, now: float) -> None:
        receiver = self._receiver
        self._pool.flow.failed += 1
        self.abort()
        if receiver is not None:
            receiver.unreachable(f"no connection within {self._pool.config.connect_seconds:g} s")

    def _made(self, task: "asyncio.Task[tuple[asyncio.Transport, Connection]]") -> None:
        self._pool.waiting.pop(self, None)
        self._pool.sweep.forget(self)
        receiver, self._receiver = self._receiver, None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._pool.flow.failed += 1
            if receiver is not None:
                receiver.unreachable(_reason(error))
            return
        transport, connection = task.result()
        lifeline.watch(transport, self._pool.config.engine_lost_seconds)
        if receiver is not None and connection.usable:
            connection.send(self._out, receiver)
        elif receiver is not None:
            receiver.unreachable("closed the connection at once")
        elif connection.usable and self._pool.take_back(connection):
            self._pool.serve_waiting()
        else:
            connection.abort()


class Pool:
    """The connections to one replica."""

    protocol: "Callable[[Pool], Connection]" = Connection

    def __init__(self, url: str, config: DataplaneConfig, sweep: Sweep, flow: Flow) -> None:
        self.origin = origin_of(url)
        self.url = url
        self.flow = flow
        self.config = config
        self.idle_seconds = config.idle_seconds  # pydantic's attribute access is slow, and this is read per chunk
        self.sweep = sweep
        self.tls = tls_context() if self.origin.tls else None
        self.tells_usage = True  # in streams, where it is asked
        self.delivered = False  # bytes of an answer came since this was last looked at
        self.heads = Heads()
        self.sizes: dict[int, bytes] = {}  # by the length of a whole chunk: the line with its size that it begins with
        self.waiting: dict[Connecting, None] = {}  # whose request has no connection yet, in the order of their coming
        self._idle: list[Connection] = []

    def send(self, out: bytes, receiver: Receiver) -> None:
        """Head and body of a request in one piece."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.usable:
                self.flow.reused += 1
                connection.send(out, receiver)
                return
        self.connect(out, receiver)

    def connect(self, out: bytes, receiver: Receiver) -> None:
        Connecting(self, out, receiver)

    def try_again(self, out: bytes, receiver: Receiver) -> None:
        """On a new connection, once: with those that others leave, an engine that resets all would be asked for ever."""
        self.flow.stale += 1
        Connecting(self, out, receiver, picky=True)

    def no_usage(self, replica: str) -> None:
        """Its engine refuses `stream_options`: it is not asked again until this dataplane starts anew or the replica's URL changes."""
        if self.tells_usage:
            self.tells_usage = False
            LOG.warning("refuses stream_options; its streams are not asked for usage any more", replica=replica)

    def serve_waiting(self) -> None:
        """A connection became free: it is for a request that waits for one, or requests that come later would overtake it."""
        while self.waiting and self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self.flow.reused += 1
                next(iter(self.waiting)).leave_to(connection)

    def take_back(self, connection: Connection) -> bool:
        """Keep it for another request, unless there are enough."""
        if len(self._idle) >= self.config.idle_upstreams_max:
            return False
        connection.idle()
        self._idle.append(connection)
        return True

    def remember_size(self, read: bytes, payload_bytes: int) -> None:
        """Of a read that was some whole chunks: if it was one, how it begins."""
        end = len(read) - payload_bytes - len(CRLF)
        if read.find(CRLF, 0, SIZE_LINE_BYTES_MAX) + len(CRLF) == end and len(read) <= CHUNK_BYTES_KNOWN_MAX:
            self.sizes[len(read)] = read[:end]

    def forget(self, connection: Connection) -> None:
        self.sweep.forget(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close what is idle; what is in use ends by itself."""
        for connection in tuple(self._idle):
            connection.abort()


class Upstreams:
    """The pools of all replicas."""

    def __init__(self, config: DataplaneConfig, sweep: Sweep) -> None:
        self._config = config
        self._sweep = sweep
        self._pools: dict[str, Pool] = {}
        self.flows = Flows()

    def pool(self, replica: Replica) -> Pool:
        pool = self._pools.get(replica.name)
        if pool is None or pool.url != replica.url:
            if pool is not None:
                pool.close()
            pool = self._pools[replica.name] = Pool(replica.url, self._config, self._sweep, self.flows.of(replica.name))
        return pool

    def take_delivered(self) -> list[str]:
        """Replicas that sent bytes of an answer since the last call."""
        names = [name for name, pool in self._pools.items() if pool.delivered]
        for name in names:
            pool = self._pools[name]
            pool.delivered = False
            pool.heads.refresh()
        return names

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Trusts the system's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR."""
    return ssl.create_default_context()


def _reason(error: BaseException) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLError():
            return f"TLS failed ({error.reason or error})"
        case OSError():
            return error.strerror or str(error) or "no connection"
        case _:
            return str(error) or type(error).__name__
