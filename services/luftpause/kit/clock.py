"""Where does a shell get the time from, so that a test can give it another one?"""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since an arbitrary moment; never goes back."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic
