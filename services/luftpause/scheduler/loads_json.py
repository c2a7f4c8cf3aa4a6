"""What load does SGLang report on `/v1/loads`, its page for routers, which is there without --enable-metrics?"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from luftpause.scheduler.core.events import Load
from luftpause.scheduler.metrics_text import COUNT_MAX, Unread

_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]


class _Rank(Struct):
    """One scheduler; with data parallelism there are several."""

    num_running_reqs: _Count
    num_waiting_reqs: _Count
    max_total_num_tokens: _Count | None = None
    num_used_tokens: _Count | None = None


class _Loads(Struct):
    loads: list[_Rank]


def load(body: bytes) -> Load | Unread:
    """The sum over all ranks; `Unread` where the page is another or says nonsense."""
    try:
        ranks = msgspec.json.decode(body, type=_Loads).loads
    except msgspec.DecodeError as error:  # ValidationError is one too
        return Unread(f"no list of loads as SGLang has it: {error}")
    if not ranks:
        return Unread("its list of loads is empty")
    tokens = _sum([rank.max_total_num_tokens for rank in ranks])
    return Load(
        running=sum(rank.num_running_reqs for rank in ranks),
        waiting=sum(rank.num_waiting_reqs for rank in ranks),
        kv_tokens=tokens,
        kv_used=_sum([rank.num_used_tokens for rank in ranks]) if tokens is not None else None,
    )


def _sum(counts: list[int | None]) -> int | None:
    """None: at least one does not say."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
