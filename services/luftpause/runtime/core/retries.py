"""When is a turn that gave no answer asked again?"""

import math
from typing import Final

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 10.0
FAILED_SECONDS_MAX: Final = 60.0  # a failed turn is tried again soon or not at all, whatever Retry-After says
LIMITED_SECONDS_MAX: Final = 86_400.0  # quotas are per minute, hour or day
LIMITED_SECONDS: Final = 1.0  # a 429 without Retry-After (spec/1 "Constants")


def wait_seconds(*, limited: bool, retry_after_s: float | None, failures: int, retries_max: int) -> float | None:
    """Seconds until the next try; None: give up.

    `failures` counts the tries without an answer, this one included, but not the rate-limited ones: these go on until the
    run is cancelled.
    """
    asked = retry_after_s if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s >= 0 else None
    if limited:
        return LIMITED_SECONDS if asked is None else min(asked, LIMITED_SECONDS_MAX)
    if retry_after_s is None or failures > retries_max:
        return None
    return max(min(asked or 0.0, FAILED_SECONDS_MAX), min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_SECONDS_MAX))
