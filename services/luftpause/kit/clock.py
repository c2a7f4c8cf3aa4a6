"""Where does a shell get the time from, so that a test can give it another one?"""

import time
from pathlib import Path
from typing import Final, Protocol

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Seconds since an arbitrary moment; never goes back."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic


def uptime() -> tuple[str, float]:
    """
    The name of the machine's present boot, and seconds since it, those asleep too.

    For times that two processes share: unlike the calendar nobody sets it. An empty name: this system doesn't tell.
    """
    try:
        return BOOT_ID.read_text("ascii").strip(), time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError, ValueError):
        return "", 0.0
