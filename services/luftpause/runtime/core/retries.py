"""When is a turn that gave no answer asked again?"""

import hashlib
import math
from typing import Final

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 10.0
FAILED_SECONDS_MAX: Final = 60.0  # a failed turn is tried again soon or not at all, whatever Retry-After says
LIMITED_SECONDS_MAX: Final = 86_400.0  # quotas are per minute, hour or day
LIMITED_SECONDS_MIN: Final = 0.1  # a limit that is over sooner is none; a run must not ask a thousand times a second
LIMITED_SECONDS: Final = 1.0  # a 429 without Retry-After (spec/1 "Constants")
SPREAD_SHARE: Final = 0.25  # of the wait, on top of it: runs that failed together must not come back together
SPREAD_SECONDS_MAX: Final = 5.0


def wait_seconds(*, limited: bool, retry_after_s: float | None, failures: int, retries_max: int, spread: float) -> float | None:
    """Seconds until the next try; None: give up. Never less than was asked for, up to the limits above.

    `failures` counts the tries without an answer, this one included, but not the rate-limited ones: these go on until the
    run is cancelled. `spread`: 0 to 1, as `spread_of`.
    """
    asked = retry_after_s if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s >= 0 else None
    if limited:
        return _spread(LIMITED_SECONDS if asked is None else min(max(asked, LIMITED_SECONDS_MIN), LIMITED_SECONDS_MAX), spread)
    if retry_after_s is None or failures > retries_max:
        return None
    return _spread(max(min(asked or 0.0, FAILED_SECONDS_MAX), min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_SECONDS_MAX)), spread)


def spread_of(run: str, tries: int) -> float:
    """At least 0, below 1: different for each run and each of its tries, and the same whenever it is asked."""
    digest = hashlib.blake2b(f"{run}/{tries}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


def _spread(seconds: float, spread: float) -> float:
    return seconds + min(SPREAD_SHARE * seconds, SPREAD_SECONDS_MAX) * spread
