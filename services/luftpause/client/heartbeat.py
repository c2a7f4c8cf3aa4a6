"""Who tells luftpause that calls which take long are still alive?"""

import threading
from collections.abc import Callable
from typing import Final

from luftpause.client.words import Lease
from luftpause.kit.clock import monotonic

IDLE_SECONDS: Final = 30.0  # the thread ends when there was no lease for so long
PART: Final = 3.0  # a lease is renewed when a third of it is over


class Heartbeat:
    """Renews leases from a thread of its own, which is there only while there are some."""

    def __init__(self, renew: Callable[[Lease], object]) -> None:
        self._renew = renew
        self._changed = threading.Condition()
        self._due: dict[Lease, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, lease: Lease) -> None:
        with self._changed:
            self._due[lease] = monotonic() + lease.expires_seconds / PART
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="luftpause heartbeat", daemon=True)
                self._thread.start()
            elif lease.expires_seconds / PART < IDLE_SECONDS:
                self._changed.notify()

    def remove(self, lease: Lease) -> None:
        with self._changed:
            self._due.pop(lease, None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._next()
                if due is None:
                    self._thread = None
                    return
            for lease in due:
                self._renew(lease)

    def _next(self) -> list[Lease] | None:
        """Wait for leases to be renewed; None: there are none any more."""
        idle_at = monotonic() + IDLE_SECONDS
        while not self._closed:
            now = monotonic()
            due = [lease for lease, at in self._due.items() if at <= now]
            for lease in due:
                self._due[lease] = now + lease.expires_seconds / PART
            if due:
                return due
            if not self._due and now >= idle_at:
                return None
            self._changed.wait(max(0.0, min([idle_at, *self._due.values()]) - now))
        return None
