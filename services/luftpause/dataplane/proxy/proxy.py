"""What do all calls through `/proxy/…` share, and what does the door ask about them?"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from luftpause.dataplane.proxy import gate
from luftpause.dataplane.proxy.call import Call, Wish
from luftpause.dataplane.proxy.headers import passed_on
from luftpause.dataplane.proxy.paths import PREFIX, Asked
from luftpause.dataplane.proxy.upstream import TargetPool
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import TurnClass
from luftpause.kit.auth import Access, Tokens, is_loopback
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import ConfigError, LuftpauseError
from luftpause.kit.faults import Faults
from luftpause.kit.ids import random_text
from luftpause.kit.logs import Log
from luftpause.kit.quota_cost import cost_of_method
from luftpause.kit.quota_port import QuotaPort
from luftpause.kit.quota_priority import priority_of
from luftpause.kit.urls import base_url

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client, Request
    from luftpause.dataplane.relay import Relay
    from luftpause.dataplane.request_head import RequestHead

WAIT: Final = b"x-luftpause-wait-ms"
PRIORITY: Final = b"x-luftpause-priority"
DIGITS_MAX: Final = 9
TELL_SECONDS_MAX: Final = 10.0  # the governor has this long to hear what became of a call
T = TypeVar("T")


class Governed(Struct, frozen=True):
    """How shared quotas are configured, and whom to ask for them."""

    config: GovernorConfig
    port: QuotaPort


class Target(Struct, frozen=True):
    """Where `/proxy/<name>/…` goes."""

    name: str
    pool: TargetPool


class Proxy:
    """Raises ConfigError for an upstream that is no base URL."""

    def __init__(self, relay: "Relay", config: DataplaneConfig, governed: Governed, tokens: Tokens, faults: Faults) -> None:
        self.port = governed.port
        self.sweep = relay.sweep
        self.log = Log("proxy")
        self._relay = relay
        self._governor = governor = governed.config
        self._tokens = tokens if tokens.required else None
        self._targets: dict[str, Target] = {}
        for name, each in governor.targets.items():
            if each.proxy is not None:
                flow = relay.upstreams.flows.of(f"proxy/{name}")
                self._targets[name] = Target(name, TargetPool(_checked(name, each.proxy, config.port), config, relay.sweep, flow))
        self._telling: set[asyncio.Task[Any]] = set()
        self.faults = faults

    # ---- for the door

    def access(self, head: "RequestHead") -> Access | Rejection:
        """Whose call it is. Where the proxy is off that is what everybody hears."""
        if not self._targets:
            return gate.OFF
        return gate.access_of(head, self._tokens, is_open=self._governor.proxy.open)

    def serve(self, conn: "Client", request: "Request") -> None:
        """Send a complete request to its target, or say why not. Never raises: what would be logged then holds the path."""
        head = request.head
        asked = self._relay.stopping or gate.target_of(head, self._targets, self._governor.targets)
        wish = asked if isinstance(asked, Rejection) else self._wish(head, request.principal, asked.target)
        if isinstance(asked, Rejection):
            conn.answer(gate.refusal_of(asked, conn, head))
        elif isinstance(wish, Rejection):
            conn.answer(gate.refusal_of(wish, conn, head))
        else:
            target = self._targets[asked.target]
            Call(self, conn, request, target, wish, _request(target, request, asked))

    # ---- for calls

    def enter(self, call: Call) -> None:
        self._relay.enter(call)

    def leave(self, call: Call) -> None:
        self._relay.leave(call)

    def keep(self, telling: Coroutine[Any, Any, T]) -> "asyncio.Task[T | None]":
        """Tell the governor something, whatever becomes of the call. None: it can't be told; a lease that nobody renews ends by itself."""
        task = asyncio.get_running_loop().create_task(self._tell(telling))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _tell(self, telling: Coroutine[Any, Any, T]) -> T | None:
        try:
            async with asyncio.timeout(TELL_SECONDS_MAX):
                return await telling
        except (LuftpauseError, TimeoutError) as error:
            self.log.debug("the governor was not told", error=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self.faults.note("telling", error)
        return None

    async def close(self) -> None:
        """Whatever is still to be told is told; then nothing is open any more."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=1.0)
        for task in tuple(self._telling):
            task.cancel()
        for target in self._targets.values():
            target.pool.close()

    def _wish(self, head: "RequestHead", principal: str, target: str) -> Wish | Rejection:
        said = head.identity(principal)
        if isinstance(said, Rejection):
            return said
        longest = self._governor.quota_hold_seconds_max
        wait = head.named.get(WAIT)
        if wait is not None and not (wait.isdigit() and len(wait) <= DIGITS_MAX):
            return Rejection(400, "bad_wait", "header x-luftpause-wait-ms must be a whole number of milliseconds, 0 or more")
        seconds = longest if wait is None else min(longest, int(wait) / 1000)
        claimed = head.named.get(PRIORITY)
        try:
            priority = priority_of(
                self._governor.callers,
                said.caller,
                None if claimed is None else int(claimed),
                batch=said.turn_class is TurnClass.BATCH,
            )
        except LuftpauseError as error:
            return Rejection(error.status, error.code, error.message)
        cost = cost_of_method(self._governor.targets[target].profile, head.method)
        return Wish(random_text(), said.caller, priority, cost, seconds)


def _request(target: Target, request: "Request", asked: Asked) -> bytes:
    """The whole request for the target. It has a length where the client's had a body, or said that there is none."""
    head, origin = request.head, target.pool.origin
    path = origin.prefix + asked.rest
    if not path.startswith(b"/"):
        path = b"/" + path
    framed = request.body or b"content-length" in head.named or b"transfer-encoding" in head.named
    length = b"content-length: %d\r\n" % len(request.body) if framed else b""
    lines = (head.method.encode(), path, origin.host_header, passed_on(head.headers), length, request.body)
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b\r\n%b" % lines


def _checked(name: str, url: str, own_port: int) -> str:
    """Raises ConfigError where calls would go nowhere, or round and round."""
    try:
        base_url(url)
    except ConfigError as error:
        raise ConfigError(f"governor.targets.{name}.proxy: {error.message}") from None
    parts = urlsplit(url)
    if parts.path.startswith(PREFIX) and parts.port == own_port and is_loopback(parts.hostname or ""):
        raise ConfigError(f"governor.targets.{name}.proxy: {url} leads back to this proxy; write the API's own address")
    return url
