"""What load does an engine report on its Prometheus page?"""

import math
import re
from collections.abc import Collection, Iterator
from typing import Final, Literal

from msgspec import Struct

from luftpause.scheduler.core.events import Load

Flavour = Literal["sglang", "vllm", "llamacpp"]


class _Gauges(Struct, frozen=True):
    running: str
    waiting: str


# Exact names: `vllm:num_requests_waiting_by_reason` repeats what `vllm:num_requests_waiting` counts.
_GAUGES: Final[dict[Flavour, _Gauges]] = {
    "sglang": _Gauges("num_running_reqs", "num_queue_reqs"),
    "vllm": _Gauges("num_requests_running", "num_requests_waiting"),
    "llamacpp": _Gauges("requests_processing", "requests_deferred"),
}
_SEPARATORS: Final = (":", "_")  # routers and some exporters write `_` where the engine writes `:`

# Shards of one scheduler report the same requests where each of them reports (SGLang --enable-metrics-for-all-schedulers).
_SHARD_LABELS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})

_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\[^\n])*)"[ \t]*,?[ \t]*')
_NUMBER: Final = re.compile(r"[ \t]*(\S+)")


class _Row(Struct, frozen=True):
    labels: dict[str, str]
    value: float


def recognise(page: str) -> Flavour | None:
    """Whose page this is: the first flavour that has both gauges on it."""
    for flavour in _GAUGES:
        if _gauges(page, flavour) is not None:
            return flavour
    return None


def load(page: str, flavour: Flavour, models: Collection[str] = ()) -> Load | None:
    """The requests inside the engine, summed over its rows; None where the page does not say or says nonsense.

    With `models`, rows of other models don't count, unless no row names any of `models` (an engine may label rows otherwise).
    """
    found = _gauges(page, flavour)
    if found is None:
        return None
    running, waiting = (_total(rows, models) for rows in found)
    if running is None or waiting is None:
        return None
    return Load(running=running, waiting=waiting)


def _gauges(page: str, flavour: Flavour) -> tuple[list[_Row], list[_Row]] | None:
    names = _GAUGES[flavour]
    for separator in _SEPARATORS:
        running = list(_rows(page, f"{flavour}{separator}{names.running}"))
        waiting = list(_rows(page, f"{flavour}{separator}{names.waiting}"))
        if running and waiting:
            return running, waiting
    return None


def _rows(page: str, name: str) -> Iterator[_Row]:
    """The samples of exactly this name. Searching beats reading all lines: pages may have megabytes of other metrics."""
    position = page.find(name)
    while position >= 0:
        after = position + len(name)
        at_line_start = position == 0 or page[position - 1] == "\n"
        if at_line_start and page[after : after + 1] in {"{", " ", "\t"}:
            row = _row(page, after)
            if row is not None:
                yield row
        position = page.find(name, after)


def _row(page: str, after: int) -> _Row | None:
    labels: dict[str, str] = {}
    if page[after] == "{":
        after += 1
        while label := _LABEL.match(page, after):
            labels[label[1]] = label[2]
            after = label.end()
        if page[after : after + 1] != "}":
            return None
        after += 1
    number = _NUMBER.match(page, after)
    if number is None:
        return None
    try:
        return _Row(labels, float(number[1]))
    except ValueError:
        return _Row(labels, math.nan)


def _total(rows: list[_Row], models: Collection[str]) -> int | None:
    rows = _of_models(_without_parts(rows), models)
    shards: dict[frozenset[tuple[str, str]], float] = {}
    for row in rows:
        if not (math.isfinite(row.value) and row.value >= 0):
            return None
        key = frozenset(item for item in row.labels.items() if item[0] not in _SHARD_LABELS)
        shards[key] = max(row.value, shards.get(key, 0.0))
    return round(sum(shards.values()))


def _without_parts(rows: list[_Row]) -> list[_Row]:
    """SGLang with priorities: the row with `priority=""` is the total of the others."""
    totals = [row for row in rows if not row.labels.get("priority")]
    return totals or rows


def _of_models(rows: list[_Row], models: Collection[str]) -> list[_Row]:
    matching = [row for row in rows if row.labels.get("model_name") in models]
    return matching or rows
