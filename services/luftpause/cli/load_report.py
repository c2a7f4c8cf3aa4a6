"""What do the runs of a load come to: how many a minute, how long, from which cache, with which errors?"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import asdict, replace


class Outcome(Enum):
    """How a run of the load ended; `UNFINISHED`: the time was over first."""

    COMPLETED = "completed"
    FAILED = "failed"
    UNFINISHED = "unfinished"


class RoundRecord(Struct, frozen=True):
    """A turn that was answered, asked `at_s` after the begin of the load, and the pause of `wait_s` after it."""

    at_s: float
    seconds: float
    first_token_s: float | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tool_calls: int = 0
    wait_s: float = 0.0


class Totals(Struct, frozen=True):
    """Of several turns."""

    turns: int
    first_token_s: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tool_calls: int


def totals(rounds: Sequence[RoundRecord]) -> Totals:
    return Totals(
        turns=len(rounds),
        first_token_s=tuple(each.first_token_s for each in rounds if each.first_token_s is not None),
        prompt_tokens=sum(each.prompt_tokens for each in rounds),
        cached_tokens=sum(each.cached_tokens for each in rounds),
        completion_tokens=sum(each.completion_tokens for each in rounds),
        tool_calls=sum(each.tool_calls for each in rounds),
    )


class RunRecord(Struct, frozen=True):
    """
    One run. `first_token_s` has one entry for each turn in which it was seen. `began_s`: since the begin of the load.

    `rounds`: its turns, where they are known one by one; `prefix_len`: tokens that the first one shares with other runs.
    """

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
    session_id: str = ""
    caller: str = ""
    began_s: float = 0.0
    prefix_len: int = 0
    rounds: tuple[RoundRecord, ...] = ()


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
    turns_per_min: float
    tool_calls: int
    prompt_tokens: int
    cached_tokens: int
    cached_share: float | None
    completion_tokens: int
    errors: dict[str, int]


class DecideReport(Struct, frozen=True):
    """What became of single-pass questions."""

    answered: int
    failed: int
    per_min: float
    seconds: Spread | None
    errors: dict[str, int]


class Report(Struct, frozen=True):
    """
    What one load measured within `seconds`, of which the first `warm_up_s` don't count.

    `interrupted`: the name of the signal that ended it before its time; empty: none did.
    """

    seconds: float
    classes: dict[str, ClassReport]
    decide: DecideReport | None = None
    warm_up_s: float = 0.0
    seed: int | None = None
    interrupted: str = ""

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.classes.values()) + (self.decide.failed if self.decide else 0)

    @property
    def completed(self) -> int:
        """Runs and single-pass questions."""
        return sum(each.completed for each in self.classes.values()) + (self.decide.answered if self.decide else 0)


def report(runs: Sequence[RunRecord], seconds: float, *, warm_up_s: float = 0.0, seed: int | None = None) -> Report:
    """Tokens, turns and first tokens count every run; run times only the completed ones. What ends within `warm_up_s` does not count."""
    counted = [_since(run, warm_up_s) for run in runs if run.began_s + run.seconds > warm_up_s] if warm_up_s else runs
    counts = max(0.0, seconds - warm_up_s)
    classes = {
        name: _of_class([run for run in counted if run.turn_class == name], counts) for name in sorted({run.turn_class for run in runs})
    }
    return Report(seconds, classes, warm_up_s=warm_up_s, seed=seed)


def decide_report(seconds: Sequence[float], errors: Sequence[str], counts_s: float) -> DecideReport:
    """Of the answers' seconds and the failures' causes within `counts_s`."""
    per_min = 60 * len(seconds) / counts_s if counts_s > 0 else 0.0
    return DecideReport(len(seconds), len(errors), per_min, spread(seconds), dict(Counter(errors).most_common()))


def _since(run: RunRecord, after_s: float) -> RunRecord:
    """The same run with the turns that ended after that alone; its own seconds stay whole."""
    if not run.rounds:
        return run
    left = totals([each for each in run.rounds if each.at_s + each.seconds > after_s])
    return replace(run, **asdict(left))


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
        turns_per_min=60 * sum(run.turns for run in runs) / seconds if seconds > 0 else 0.0,
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
