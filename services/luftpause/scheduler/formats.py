"""Which formats does a replica serve, found out without making it work?

A GET is asked first: a server that knows a path for POST only answers 405 to it. Servers that answer 404 to that (llama.cpp) or anything
else are sent a POST with an empty body, which no server can act on: 404, 405 and 501 mean that the path is not served, another refusal of
the body that it is. One that can't be judged (no key, no answer in time) counts as served.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

from msgspec import Struct

from luftpause.kit.clock import Clock
from luftpause.scheduler.engine_http import Answer

PATHS: Final = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
}
CLASSIFIER_PATHS: Final = {"classify": "/classify"}
AGAIN_SECONDS: Final = 60.0  # what could not be judged is asked again this often

_MISSING: Final = frozenset({404, 405, 501})
_UNTOLD: Final = frozenset({0, 401, 403, 407, 408, 429})  # and 3xx, 5xx

Ask = Callable[[Literal["GET", "POST"], str, float], Awaitable[Answer]]  # of a method and path within seconds


class Served(Struct, frozen=True):
    """`apis` None: nothing is known to be missing or all is, so that no turn is refused for it. `problem` is for a person."""

    apis: tuple[str, ...] | None
    problem: str = ""


class Formats:
    """Asked once when a replica is or becomes healthy."""

    def __init__(self, kind: Literal["generative", "classifier"], ask: Ask, clock: Clock) -> None:
        self._paths: Mapping[str, str] = PATHS if kind == "generative" else CLASSIFIER_PATHS
        self._ask = ask
        self._clock = clock
        self._due = float("-inf")

    def anew(self) -> None:
        """The replica was away: it may have come back as another."""
        self._due = float("-inf")

    @property
    def due(self) -> bool:
        return self._clock() >= self._due

    async def find(self, seconds: float) -> Served:
        """One question after the other, for engines with few threads; within `seconds` in all."""
        until = self._clock() + seconds
        found: dict[str, bool | None] = {}
        for name, path in self._paths.items():
            found[name] = await self._one(path, until)
        self._due = self._clock() + AGAIN_SECONDS if None in found.values() else float("inf")
        return _served(found, self._paths)

    async def _one(self, path: str, until: float) -> bool | None:
        seen = await self._within(until, "GET", path)
        if seen == 405:
            return True
        return _judged(await self._within(until, "POST", path)) if seen else None  # whoever says nothing to a GET is busy, or away

    async def _within(self, until: float, method: Literal["GET", "POST"], path: str) -> int:
        """The status of the answer; 0: there is no time for one, or none came."""
        left = until - self._clock()
        return (await self._ask(method, path, left)).status if left > 0 else 0


def _judged(status: int) -> bool | None:
    if status in _MISSING:
        return False
    return None if status in _UNTOLD or 300 <= status < 400 or status >= 500 else True


def _served(found: Mapping[str, bool | None], paths: Mapping[str, str]) -> Served:
    if True not in found.values() and None not in found.values():
        listed = ", ".join(paths.values())
        return Served(None, f"it has none of {listed}; is its url right, and its kind?")
    if True not in found.values() and False not in found.values():
        return Served(None)
    return Served(tuple(name for name, served in found.items() if served is not False))
