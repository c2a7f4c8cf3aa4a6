"""What load does an engine report on its Prometheus page?"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal

from msgspec import Struct

from luftpause.scheduler.core.events import Load

Flavour = Literal["sglang", "vllm", "llamacpp"]

COUNT_MAX: Final = 1 << 31  # whoever reports more is wrong
NEAR_MAX: Final = 6
NEAR_CHARS_MAX: Final = 1 << 20  # so much of a page is searched for names that resemble the gauges


class Unread(Struct, frozen=True):
    """No load could be read; `why` is for a person and stays the same while the cause does."""

    why: str


class _Gauges(Struct, frozen=True):
    running: str
    waiting: str


# Exact names: `vllm:num_requests_waiting_by_reason` repeats what `vllm:num_requests_waiting` counts.
_GAUGES: Final[dict[Flavour, _Gauges]] = {
    "sglang": _Gauges("num_running_reqs", "num_queue_reqs"),
    "vllm": _Gauges("num_requests_running", "num_requests_waiting"),
    "llamacpp": _Gauges("requests_processing", "requests_deferred"),
}
_SEPARATORS: Final = (":", "_", ".")  # routers and exporters write `_` or `.` where the engine writes `:`

# Shards of one scheduler report the same requests where each of them reports (SGLang --enable-metrics-for-all-schedulers).
_SHARD_LABELS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
_PARTS: Final = "priority"  # SGLang: the row with `priority=""` is the total of those with a number

_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\[^\n])*)"[ \t]*,?[ \t]*')
_NUMBER: Final = re.compile(r"[ \t]*(\S+)")
_NEAR: Final = re.compile(r"^((?:sglang|vllm|llamacpp)[:_.]\w*(?:running|waiting|queue|processing|deferred)\w*)(?=[{ \t])", re.MULTILINE)

Key = frozenset[tuple[str, str]]  # a row's labels but for those above: one scheduler of one engine


class _Row(Struct, frozen=True):
    labels: dict[str, str]
    value: float


class _Page(Struct, frozen=True):
    """`rows` gives the samples of a metric, by its name after the prefix."""

    prefix: str
    rows: Callable[[str], list[_Row]]


def recognise(page: str) -> Flavour | None:
    """Whose page this is: the first flavour that has both gauges on it."""
    for flavour in _GAUGES:
        if _found(page, flavour) is not None:
            return flavour
    return None


def load(page: str, flavour: Flavour | None, models: Collection[str] = ()) -> Load | Unread:
    """The requests inside the engine, summed over its rows, and its KV memory where it says so; `Unread` where the page says nonsense.

    With `models`, rows of other models don't count, unless no row names any of `models` (an engine may label rows otherwise).
    """
    flavour = flavour or recognise(page)
    found = _found(page, flavour) if flavour else None
    if flavour is None or found is None:
        return Unread(_without_gauges(page, flavour))
    names = _GAUGES[flavour]
    totals: list[dict[Key, float]] = []
    for name in (names.running, names.waiting):
        total = _by_scheduler(_of_models(found.rows(name), models))
        if mistake := _mistake(total):
            return Unread(f"{found.prefix}{name} {mistake}")
        totals.append(total)
    running, waiting = totals
    if running.keys() != waiting.keys():
        return Unread(f"some rows have only one of {found.prefix}{names.running} and {found.prefix}{names.waiting}")
    tokens, used = _KV[flavour](found, len(running))
    return Load(running=round(sum(running.values())), waiting=round(sum(waiting.values())), kv_tokens=tokens, kv_used=used)


# ---- what is wrong with a page ----------------------------------------------------------------------------------


def _without_gauges(page: str, flavour: Flavour | None) -> str:
    start = page[:64].lstrip("\ufeff \t\r\n")[:1]
    if not start:
        return "the page is empty"
    if start in "<{[":
        return f"the page is {'HTML' if start == '<' else 'JSON'}, no Prometheus text"
    names = [f"{flavour}:{each}" for each in (_GAUGES[flavour].running, _GAUGES[flavour].waiting)] if flavour else []
    missing = f"the gauges {' and '.join(names)} are missing" if names else "the gauges of SGLang, vLLM and llama.cpp are missing"
    near = sorted(set(_NEAR.findall(page[:NEAR_CHARS_MAX])))[:NEAR_MAX]
    return f"{missing}; it has {', '.join(near)}" if near else missing


def _mistake(values: dict[Key, float]) -> str:
    for value in values.values():
        if math.isnan(value):
            return "holds no number"
        if math.isinf(value) or value > COUNT_MAX:
            return "is too large for a count"
        if value < 0:
            return "is negative"
    return ""


# ---- rows -------------------------------------------------------------------------------------------------------


def _found(page: str, flavour: Flavour) -> _Page | None:
    """The page under the one spelling of names that has both gauges."""
    names = _GAUGES[flavour]
    for separator in _SEPARATORS:
        prefix = f"{flavour}{separator}"
        made = _Page(prefix, lambda name, prefix=prefix: list(_rows(page, f"{prefix}{name}")))
        if made.rows(names.running) and made.rows(names.waiting):
            return made
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


def _by_scheduler(rows: list[_Row]) -> dict[Key, float]:
    """What each scheduler reports: its total where it has one, else the sum of its parts; once, however many of its shards say it."""
    shards: dict[Key, dict[Key, list[_Row]]] = {}
    for row in rows:
        key = frozenset(item for item in row.labels.items() if item[0] not in _SHARD_LABELS and item[0] != _PARTS)
        shard = frozenset(item for item in row.labels.items() if item[0] in _SHARD_LABELS)
        shards.setdefault(key, {}).setdefault(shard, []).append(row)
    return {key: _worst([_sum(each) for each in of.values()]) for key, of in shards.items()}


def _sum(rows: list[_Row]) -> float:
    totals = [row.value for row in rows if not row.labels.get(_PARTS)]
    values = totals or [row.value for row in rows]
    odd = [value for value in values if not value >= 0]  # must not vanish in a sum
    return odd[0] if odd else sum(values)


def _worst(values: list[float]) -> float:
    odd = [value for value in values if not value >= 0]
    return odd[0] if odd else max(values)


def _of_models(rows: list[_Row], models: Collection[str]) -> list[_Row]:
    matching = [row for row in rows if row.labels.get("model_name") in models]
    return matching or rows


# ---- KV memory: it never makes a load unread --------------------------------------------------------------------


def _tokens(values: dict[Key, float], schedulers: int) -> int | None:
    """Their sum, unless it would be one of a part of the schedulers, or of nonsense."""
    return round(sum(values.values())) if values and len(values) == schedulers and not _mistake(values) else None


def _sglang_kv(page: _Page, schedulers: int) -> tuple[int | None, int | None]:
    tokens = _tokens(_by_scheduler(page.rows("max_total_num_tokens")), schedulers)
    used = _tokens(_by_scheduler(page.rows("num_used_tokens") or page.rows("kv_used_tokens")), schedulers)
    return tokens, used if tokens is not None else None


def _vllm_kv(page: _Page, schedulers: int) -> tuple[int | None, int | None]:
    """The size stands in labels of `cache_config_info`, the use is a part of it between 0 and 1, both per engine."""
    tokens = {_engine(row): _blocks(row.labels) for row in page.rows("cache_config_info")}
    total = _tokens(tokens, schedulers)
    parts = {_engine(row): row.value for row in page.rows("kv_cache_usage_perc")}
    if total is None or parts.keys() != tokens.keys() or not all(0 <= part <= 1 for part in parts.values()):
        return total, None
    return total, round(sum(part * tokens[engine] for engine, part in parts.items()))


def _engine(row: _Row) -> Key:
    return frozenset(item for item in row.labels.items() if item[0] in {"engine", "worker_addr"})


def _blocks(labels: dict[str, str]) -> float:
    """Newer versions name the tokens; NaN where there are no numbers (`None` before the engine has measured its memory)."""
    if (size := labels.get("kv_cache_size_tokens", "")).isdecimal():
        return float(size)
    blocks, block = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return float(blocks) * float(block) if blocks.isdecimal() and block.isdecimal() else math.nan


def _no_kv(_page: _Page, _schedulers: int) -> tuple[int | None, int | None]:
    return None, None


_KV: Final[dict[Flavour, Callable[[_Page, int], tuple[int | None, int | None]]]] = {
    "sglang": _sglang_kv,
    "vllm": _vllm_kv,
    "llamacpp": _no_kv,
}
