"""How is work that a model or a tool server can make endless kept from holding up every run?

A regular expression or a JSON schema can take a validator hours, and the event loop with it; threads don't help, because such code holds
the interpreter's lock. A timer of the processor time that this process uses interrupts even the matching of an expression.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

AGAIN_SECONDS: Final = 0.05  # of processor time, between one try to break work off and the next


class _Spent(BaseException):
    pass


class CpuBudget:
    """Processor seconds for several pieces of work; the one that spends them is broken off, later ones are not begun.

    Signals reach the main thread only: in another one there is no limit.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def __call__(self, work: Callable[[], T], otherwise: T) -> T:
        """What `work` returns, or `otherwise` when there was not enough time. `work` must leave nothing half done when it is broken off."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        if self.left <= 0:
            return otherwise
        try:
            _timer.arm(self.left)
            try:
                return work()
            finally:
                self.left = min(self.left, _timer.disarm())  # the kernel counts in ticks, rounded up
        except _Spent:
            self.left = 0
            _disarm_for_good()
            return otherwise


class _Timer:
    """
    The process has one; `armed` keeps a signal that arrives late from hitting something else.

    It rings again until it is disarmed: what is raised in a finaliser or a callback of the garbage collector goes no further.
    """

    def __init__(self) -> None:
        self._armed = False
        self._installed = False

    def arm(self, seconds: float) -> None:
        if not self._installed:
            signal.signal(signal.SIGVTALRM, self._ring)
            self._installed = True
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN_SECONDS)

    def disarm(self) -> float:
        """The seconds that were left."""
        self._armed = False
        return signal.setitimer(signal.ITIMER_VIRTUAL, 0)[0]

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._armed:
            raise _Spent


_timer = _Timer()


def _disarm_for_good() -> None:
    """It may ring again, and more than once, while it is being disarmed."""
    while True:
        try:
            _timer.disarm()
        except _Spent:
            continue
        return
