"""How fast and how large are the engines of a recorded log, as far as it tells?

One set of figures for all replicas: a log of mixed hardware is not told apart. What can't be fitted has the engine model's default, and
says so.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.cli.replay_turns import Turn, Workload
from luftpause_fakes.engine_model import EngineParams

SAMPLES_MIN: Final = 8
COMPLETION_TOKENS_MIN: Final = 8  # of an answer whose speed counts
KV_ROOM: Final = 1.25  # more than the longest turn, or than was seen in flight together
LEAST: Final = 1e-6

Sample = tuple[float, float]


class Fit(Struct, frozen=True):
    """`sources` says for each figure where it comes from: log, flag, or default."""

    params: EngineParams
    sources: dict[str, str]


def fit(found: Workload, given: dict[str, float]) -> Fit:
    """`given`: figures by their names in EngineParams, which win over what the log says."""
    default = EngineParams()
    values: dict[str, float | None] = {"decode_kv_token_seconds": 0.0}  # its share is in the slope per sequence
    values |= _decode(found.turns) | _prefill(found.turns) | _size(found)
    sources = dict.fromkeys(values, "log")
    if "decode_step_seconds" not in values:  # the default slope goes with the default step
        del values["decode_kv_token_seconds"], sources["decode_kv_token_seconds"]
    if "kv_tokens" not in values:
        values["kv_tokens"] = _room(found.turns, default.kv_tokens)
        sources["kv_tokens"] = "guessed: the log does not say it"
    values |= given
    sources |= dict.fromkeys(given, "flag")
    for name in ("prefill_tokens_per_second", "decode_step_seconds", "running_max"):
        sources.setdefault(name, "default")
    whole = {
        name: int(value) for name, value in values.items() if value is not None and name in {"kv_tokens", "running_max", "chunk_tokens"}
    }
    return Fit(replace(default, **(values | whole)), sources)


def _decode(turns: Sequence[Turn]) -> dict[str, float | None]:
    """Seconds per decode step against how many decode: a line through the speeds of the answers."""
    by_replica: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        if turn.first is not None:
            by_replica[turn.replica].append(turn)
    samples: list[Sample] = []
    for mine in by_replica.values():
        firsts = sorted(turn.first or 0.0 for turn in mine)
        ends = sorted(turn.finished for turn in mine)
        for turn in mine:
            if turn.completion_tokens >= COMPLETION_TOKENS_MIN and not turn.guessed and turn.finished > (turn.first or 0.0):
                middle = ((turn.first or 0.0) + turn.finished) / 2
                together = bisect_right(firsts, middle) - bisect_left(ends, middle)
                samples.append((together, (turn.finished - (turn.first or 0.0)) / (turn.completion_tokens - 1)))
    if len(samples) < SAMPLES_MIN:
        return {}
    step, each = _line(samples)
    return {"decode_step_seconds": max(step, LEAST), "decode_sequence_seconds": max(each, 0.0)}


def _prefill(turns: Sequence[Turn]) -> dict[str, float | None]:
    """From the quarter of the turns whose first token came soonest for what had to be prefilled: the others waited in the engine."""
    samples = [
        (turn.prompt_tokens - (turn.cached_tokens or 0), turn.first - turn.placed)
        for turn in turns
        if turn.first is not None and not turn.guessed and turn.first > turn.placed and turn.prompt_tokens > (turn.cached_tokens or 0)
    ]
    if len(samples) < SAMPLES_MIN:
        return {}
    samples.sort(key=lambda sample: sample[1] / sample[0])
    soonest = samples[: max(SAMPLES_MIN, len(samples) // 4)]
    start, per_token = _line(soonest)
    if per_token <= LEAST or start < 0:  # prompts of one length tell no slope
        start, per_token = 0.0, median(seconds / tokens for tokens, seconds in soonest)
    return {"prefill_tokens_per_second": 1 / per_token, "prefill_step_seconds": start}


def _size(found: Workload) -> dict[str, float | None]:
    loads = [report.load for reports in found.loads.values() for report in reports]
    sizes: dict[str, float | None] = {}
    full = max((load.running for load in loads if load.waiting > 0), default=0)
    if slots := max((load.slots or 0 for load in loads), default=0):
        sizes["running_max"] = slots
    elif full > 0 and full >= max(load.running for load in loads):  # else those waited for the next step, not for a place
        sizes["running_max"] = full
    known = [load.kv_tokens for load in loads if load.kv_tokens]
    if known:
        sizes["kv_tokens"] = max(*known, _longest(found.turns))
    return sizes


def _room(turns: Sequence[Turn], least: int) -> int:
    """As much as was in flight on one replica at once, and a bit."""
    most = 0
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for turn in turns:
        tokens = turn.prompt_tokens + turn.completion_tokens
        changes[turn.replica] += [(turn.placed, tokens), (turn.finished, -tokens)]
    for mine in changes.values():
        inside = 0
        for _, tokens in sorted(mine):
            inside += tokens
            most = max(most, inside)
    return max(least, _longest(turns), round(KV_ROOM * most))


def _longest(turns: Sequence[Turn]) -> int:
    return round(KV_ROOM * max((turn.prompt_tokens + turn.completion_tokens for turn in turns), default=0))


def _line(samples: Sequence[Sample]) -> tuple[float, float]:
    """Least squares: value at 0, and slope. Without two different x, or with a slope below 0, a level line."""
    mean_x, mean_y = fmean(x for x, _ in samples), fmean(y for _, y in samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
    return (mean_y - slope * mean_x, slope) if slope > 0 else (mean_y, 0.0)
