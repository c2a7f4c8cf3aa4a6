"""When is a turn that gave no answer asked again?"""

import math
from typing import Final

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 10.0
LIMITED_SECONDS: Final = 1.0  # a 429 without Retry-After (spec/1 "Constants")


def wait_seconds(*, limited: bool, retry_after_s: float | None, failures: int, retries_max: int) -> float | None:
    """Seconds until the next try; None: give up.

    `failures` counts the tries without an answer, this one included, but not the rate-limited ones: these go on until the
    run is cancelled.
    """
    asked = retry_after_s if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s >= 0 else None
    if limited:
        return LIMITED_SECONDS if asked is None else asked
    if retry_after_s is None or failures > retries_max:
        return None
    return max(asked or 0.0, min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_SECONDS_MAX))
