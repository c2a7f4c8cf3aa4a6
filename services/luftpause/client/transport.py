"""How does an httpx client come to share a quota, whether it works from threads or on an event loop?"""

import asyncio
import threading

import httpx

from luftpause.client.asking import Outage
from luftpause.client.in_loop import AsyncCalls
from luftpause.client.in_threads import Calls
from luftpause.client.settings import Cost, WhenAway, settings_of


class QuotaTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """
    Sends the calls of an httpx client, each when the shared quota of `target` has room for it.

    `httpx.Client(transport=QuotaTransport("github"))`, and the same with `AsyncClient` on asyncio. Before a call it asks luftpause for a
    lease, afterwards it tells what the answer's headers say of limits. An answer that is a refusal by quota is not seen: the call is made
    again when its window opens, at most three times, if its body can be sent again and there is time. Bodies are not touched.

    - `url`: luftpause's dataplane; else LUFTPAUSE_URL, else http://127.0.0.1:8080. `token`: else LUFTPAUSE_TOKEN.
    - `caller`, `priority` (0, 1, 2), `batch`: who calls, and how urgent it is; `cost`: of a call, as a number or by scope.
    - `wait_seconds`: how long a call may wait for quota; else as long as its own `pool` time-out. If that is too short the answer is a 429
      whose Retry-After is the caller's window: the provider's own if it was asked, else one with the header x-luftpause-refused.
    - `when_away`: what happens while luftpause can't be asked. "wait": the call waits for it, then raises LuftpauseAwayError. "send": it
      goes out ungoverned. Both are logged, once per outage.
    - `inner`: what sends the calls; else httpx's usual transport.

    One call says otherwise by `extensions={"luftpause": {"priority": 0, "caller": …, "cost": …, "wait_seconds": …}}`. Neither do the calls'
    credentials go to luftpause, nor its token to the provider. ValueError: an argument makes no sense.
    """

    def __init__(
        self,
        target: str,
        *,
        url: str | None = None,
        token: str | None = None,
        caller: str | None = None,
        priority: int | None = None,
        batch: bool = False,
        cost: Cost | None = None,
        wait_seconds: float | None = None,
        when_away: WhenAway = "wait",
        inner: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings_of(target, url, token, caller, priority, batch, cost, wait_seconds, when_away)
        self._outage = Outage(self._settings)
        self._inner = inner
        self._making = threading.Lock()
        self._calls: Calls | None = None
        self._async_calls: AsyncCalls | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._in_threads().handle(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._in_loop().handle(request)

    def close(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()

    async def aclose(self) -> None:
        calls, self._async_calls = self._async_calls, None
        if calls is not None:
            await calls.aclose()

    def _in_threads(self) -> Calls:
        with self._making:
            if self._calls is None:
                inner = self._inner if self._inner is not None else httpx.HTTPTransport()
                if not isinstance(inner, httpx.BaseTransport):
                    raise TypeError("inner is for event loops only; give an httpx.BaseTransport to an httpx.Client")
                self._calls = Calls(self._settings, self._outage, inner)
            return self._calls

    def _in_loop(self) -> AsyncCalls:
        """A client's connections belong to the loop that made them."""
        if self._async_calls is None or self._async_calls.loop is not asyncio.get_running_loop():
            inner = self._inner if self._inner is not None else httpx.AsyncHTTPTransport()
            if not isinstance(inner, httpx.AsyncBaseTransport):
                raise TypeError("inner is for threads only; give an httpx.AsyncBaseTransport to an httpx.AsyncClient")
            self._async_calls = AsyncCalls(self._settings, self._outage, inner)
        return self._async_calls
