"""How does a load end early, with what was measured so far?"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Generator
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """`asked` is set when somebody wants the load to end; `by`: the signal's name, empty before that."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.by = ""


@contextlib.contextmanager
def interruptible() -> Generator[Interrupt]:
    """
    Within the block the first SIGINT or SIGTERM asks for the end; a second one does what it does elsewhere.

    Only in the main thread, which alone hears signals.
    """
    interrupt = Interrupt()
    loop = asyncio.get_running_loop()

    def heard(number: signal.Signals) -> None:
        interrupt.by = number.name
        interrupt.asked.set()
        forget()

    def forget() -> None:
        for each in SIGNALS:
            loop.remove_signal_handler(each)

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    for each in SIGNALS:
        loop.add_signal_handler(each, heard, each)
    try:
        yield interrupt
    finally:
        forget()
