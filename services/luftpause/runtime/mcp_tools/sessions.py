"""Does the MCP session that a run belongs to still live?"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from luftpause.kit.clock import Clock, monotonic


@dataclass
class _Session:
    open: int = 0  # requests and streams
    last: float = 0.0


def session_name(session: str) -> str:
    """What journal, logs and status pages call a session: its id lets anybody use it, so it stays here."""
    return hashlib.blake2b(session.encode(), digest_size=12).hexdigest()


class LiveSessions:
    """Sessions of the older protocol seen by this process.

    They go by `session_name`. A session's runs are its own while it lives. When it is over (ended, idle for too long, or the runtime was
    started again) nobody could reach them any more; then whoever has the handle may.
    """

    def __init__(self, idle_seconds: float, clock: Clock = monotonic) -> None:
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # longest silent first

    def lives(self, owner: str) -> bool:
        """`owner` as `caller.owner_of` gave it."""
        kind, _, name = owner.partition(":")
        if kind != "session":
            return True
        session = self._sessions.get(name)
        return session is not None and not self._over(session)

    def began(self, name: str) -> None:
        """A request of this session came in and was taken."""
        session = self._sessions.setdefault(name, _Session())
        session.open += 1
        self._touch(name, session)
        self._sweep()

    def answered(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is not None:
            session.open = max(0, session.open - 1)
            self._touch(name, session)

    def ended(self, name: str) -> None:
        """The client said goodbye, or the SDK no longer knows it."""
        self._sessions.pop(name, None)

    def _touch(self, name: str, session: _Session) -> None:
        session.last = self._clock()
        self._sessions.move_to_end(name)

    def _over(self, session: _Session) -> bool:
        return not session.open and self._clock() - session.last > self._idle_seconds

    def _sweep(self) -> None:
        while self._sessions:
            name, oldest = next(iter(self._sessions.items()))
            if not self._over(oldest):
                return
            del self._sessions[name]
