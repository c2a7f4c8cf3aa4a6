"""How many requests were answered with which status, by route?

Counted where a head is written. A path that is no route of ours counts as `other`, whatever clients may ask for.
"""

from collections.abc import Iterable
from typing import Final

from luftpause.kit.metrics import OTHER, Labels

STATUS: Final = slice(9, 12)  # of an HTTP/1.1 status line
NAMED: Final = (
    ("/v1/models/", "/v1/models/{model}"),
    ("/v1/runs/", "/v1/runs/{run}"),
    ("/v1/responses/", "/v1/responses/{response}"),
    ("/v1/quota/", "/v1/quota/{target}"),
    ("/proxy/", "/proxy/{target}"),
)


class Answers:
    """`routes`: paths that count under their own name. Others are those in `NAMED`, or `other`."""

    __slots__ = ("_counts", "_routes")

    def __init__(self, routes: Iterable[str] = ()) -> None:
        self._routes = frozenset(routes)
        self._counts: dict[tuple[str, bytes], int] = {}

    def add(self, path: str, head: bytes) -> None:
        """`head` begins with the status line."""
        try:
            self._counts[path, head[STATUS]] += 1
        except KeyError:
            key = self._named(path), head[STATUS]
            self._counts[key] = self._counts.get(key, 0) + 1

    def series(self) -> Iterable[tuple[Labels, float]]:
        """Counts by (route, code)."""
        return [((route, code.decode("latin-1")), count) for (route, code), count in self._counts.items()]

    def _named(self, path: str) -> str:
        if path in self._routes:
            return path
        return next((name for prefix, name in NAMED if path.startswith(prefix)), OTHER)
