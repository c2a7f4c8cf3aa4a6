"""What do the runs of a load come to: how many a minute, how long, from which cache, with which errors?"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct


class Outcome(Enum):
    """How a run of the load ended; `UNFINISHED`: the time was over first."""

    COMPLETED = "completed"
    FAILED = "failed"
    UNFINISHED = "unfinished"


class RunRecord(Struct, frozen=True):
    """One run. `first_token_s` has one entry for each turn in which it was seen."""

    turn_class: str
    outcome: Outcome
    seconds: float
    turns: int
    first_token_s: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    tool_calls: int = 0
    error: str | None = None


class Spread(Struct, frozen=True):
    p50: float
    p95: float
    p99: float


class ClassReport(Struct, frozen=True):
    """The figures of one class. `None`: there was nothing to measure."""

    completed: int
    failed: int
    unfinished: int
    runs_per_min: float
    run_s: Spread | None
    first_token_s: Spread | None
    turns: int
    tool_calls: int
    prompt_tokens: int
    cached_tokens: int
    cached_share: float | None
    completion_tokens: int
    errors: dict[str, int]


class Report(Struct, frozen=True):
    """What one load measured within `seconds`."""

    seconds: float
    classes: dict[str, ClassReport]

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.classes.values())

    @property
    def completed(self) -> int:
        return sum(each.completed for each in self.classes.values())


def report(runs: Sequence[RunRecord], seconds: float) -> Report:
    """Tokens, turns and first tokens count every run; run times only the completed ones."""
    names = sorted({run.turn_class for run in runs})
    return Report(seconds, {name: _of_class([run for run in runs if run.turn_class == name], seconds) for name in names})


def _of_class(runs: Sequence[RunRecord], seconds: float) -> ClassReport:
    completed = [run for run in runs if run.outcome is Outcome.COMPLETED]
    prompt = sum(run.prompt_tokens for run in runs)
    cached = sum(run.cached_tokens for run in runs)
    return ClassReport(
        completed=len(completed),
        failed=sum(run.outcome is Outcome.FAILED for run in runs),
        unfinished=sum(run.outcome is Outcome.UNFINISHED for run in runs),
        runs_per_min=60 * len(completed) / seconds if seconds > 0 else 0.0,
        run_s=spread([run.seconds for run in completed]),
        first_token_s=spread([value for run in runs for value in run.first_token_s]),
        turns=sum(run.turns for run in runs),
        tool_calls=sum(run.tool_calls for run in runs),
        prompt_tokens=prompt,
        cached_tokens=cached,
        cached_share=cached / prompt if prompt else None,
        completion_tokens=sum(run.completion_tokens for run in runs),
        errors=dict(Counter(run.error for run in runs if run.error).most_common()),
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Percentiles by nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Spread(at(0.50), at(0.95), at(0.99))
