"""Which trace does a request belong to? The W3C header `traceparent`, read and written.

A trace that is not to be recorded (flags 00) stays as it came: no span is made, its context goes on unchanged.
"""

import re
from secrets import token_hex
from typing import Final

from msgspec import Struct

TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
SAMPLED: Final = 1


class TraceContext(Struct, frozen=True, gc=False):
    """`trace` has 32 hex digits, `span` 16; `span` is the one that new spans are children of."""

    trace: str
    span: str
    sampled: bool = True

    def header(self) -> str:
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


def read(traceparent: str) -> TraceContext | None:
    """None: there is none, or it is malformed, which counts as none."""
    found = TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    return TraceContext(found[1], found[2], bool(int(found[3], 16) & SAMPLED))


def new_trace() -> str:
    return token_hex(16)


def new_span() -> str:
    return token_hex(8)
