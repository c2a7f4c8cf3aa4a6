"""What does a call cost by its HTTP method, where the provider counts more than calls?"""

from collections.abc import Mapping
from typing import Final

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# docs.github.com: a request that changes something costs five points, and most of them count as content that is created.
WRITES: Final[Mapping[str, Mapping[str, float]]] = {"github": {"content": 1.0, "points": 5.0, "requests": 1.0}}


def cost_of_method(profile: str | None, method: str) -> Mapping[str, float] | None:
    """Units by what scopes count; None: what a call costs there usually."""
    if profile is None or method.upper() in SAFE_METHODS:
        return None
    return WRITES.get(profile)
