"""How many slots does llama.cpp tell on `/props`?"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from luftpause.scheduler.metrics_text import COUNT_MAX


class _Props(Struct):
    total_slots: Annotated[int, Meta(ge=1, le=COUNT_MAX)]


def slots(body: bytes) -> int | None:
    """
    Requests that it runs at once, each in a slot that keeps its conversation. None where it does not say (old ones, its router of models).

    The context that stands there too says nothing of the memory: it is what one slot may take, of a share of its own or of what all have.
    """
    try:
        return msgspec.json.decode(body, type=_Props).total_slots
    except msgspec.DecodeError:  # ValidationError is one too
        return None
