"""What does the head of a request say, and what follows from it for every request that comes with the same one?

Whoever keeps connections sends the same head again and again, so a head is read once and shared: by the requests of a connection, and by
connections. Only the digits of its Content-Length are a request's own.
"""

from typing import Final

from luftpause.dataplane.identify import Identity, identify
from luftpause.dataplane.outgoing import forwarded
from luftpause.dataplane.recurring import Recurring
from luftpause.dataplane.rejection import Rejection

KNOWN_MAX: Final = 256  # heads that connections share
LENGTH: Final = b"content-length"

Headers = list[tuple[bytes, bytes]]


class RequestHead:
    """A complete head; nobody changes it. Header names are lower case; `named` has the last of several with the same name.

    `path` is that of the target, without query and without a slash at its end. `allowed`: where it comes from, where it goes and what it
    brings were checked and may be; tokens, which change, are not part of that.
    """

    __slots__ = (
        "_forwarded",
        "_identity",
        "_principal",
        "allowed",
        "headers",
        "keep_alive",
        "method",
        "named",
        "path",
        "target",
        "version",
    )

    def __init__(
        self, method: str, target: bytes, path: str, headers: Headers, named: dict[bytes, bytes], *, version: str = "1.1", keep_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.named = named
        self.version = version
        self.keep_alive = keep_alive
        self.allowed = False
        self._forwarded: bytes | None = None
        self._identity: Identity | Rejection | None = None
        self._principal = ""

    def identity(self, principal: str) -> Identity | Rejection:
        """Which run, caller and class its headers name."""
        found = self._identity
        if found is None or principal != self._principal:
            found = self._identity = identify(self.named, principal)
            self._principal = principal
        return found

    def forwarded(self, allowed: frozenset[bytes]) -> bytes:
        """The header lines that go on to engines; `allowed` is the same for all."""
        if self._forwarded is None:
            self._forwarded = forwarded(self.headers, self.named, allowed)
        return self._forwarded

    def with_length(self, digits: bytes) -> Headers:
        """Its headers, with these digits as the length; empty: as they are."""
        if not digits:
            return self.headers
        return [(name, digits if name == LENGTH else value) for name, value in self.headers]


NO_HEAD: Final = RequestHead("", b"", "", [], {}, keep_alive=False)

Known = tuple[Recurring, RequestHead]


class KnownHeads:
    """Heads that may come again, on whatever connection."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def share(self, recurring: Recurring, head: RequestHead) -> Known:
        """What is known of this head, which is now also this if nothing was."""
        found = self._known.get(recurring.around)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()  # connections keep what they use
            found = self._known[recurring.around] = (recurring, head)
        return found
