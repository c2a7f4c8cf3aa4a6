"""Which run does a client mean when it cancels its `run` request?"""

import asyncio
from collections.abc import Callable
from typing import Final

LINGER_SECONDS: Final = 5.0

Key = tuple[str, str]  # session, request id


class OpenCalls:
    """Open `run` requests by session and request id, with what cancels their run.

    The SDK cancels a request's handler for several reasons: `notifications/cancelled`, a session that ended, a stop. Only the first
    may cancel the run, and its notice comes right after the cancellation; so a request that was left stays known for a moment.
    """

    def __init__(self) -> None:
        self._open: dict[Key, Callable[[], None]] = {}

    def opened(self, session: str, request: object, cancel: Callable[[], None]) -> Key:
        key = (session, str(request))
        self._open[key] = cancel
        return key

    def closed(self, key: Key) -> None:
        self._open.pop(key, None)

    def left(self, key: Key) -> None:
        """The handler was cancelled, by whatever."""
        cancel = self._open.get(key)
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._forget, key, cancel)

    def cancelled(self, session: str, request: object) -> None:
        """`notifications/cancelled` came."""
        cancel = self._open.pop((session, str(request)), None)
        if cancel is not None:
            cancel()

    def _forget(self, key: Key, cancel: Callable[[], None] | None) -> None:
        if self._open.get(key) is cancel:  # a client may use its ids again
            self._open.pop(key, None)
