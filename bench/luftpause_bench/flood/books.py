"""What came of a flood?"""

from collections import defaultdict
from statistics import fmean

from msgspec import Struct

from luftpause_bench.flood.workload import Workload
from luftpause_fakes.engine_model import Finished


def percentile(values: list[float], share: float) -> float:
    """0 where there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class OfCrowd(Struct, frozen=True):
    """Of one crowd, after the warm-up."""

    runs_per_minute: float
    turns_per_minute: float
    run_seconds_p50: float
    run_seconds_p95: float
    first_token_seconds_p50: float
    first_token_seconds_p95: float


class Outcome(Struct, frozen=True):
    """One flood, one seed. Queue lengths are means over time and sums over engines; `hit`: prompt tokens found cached, as a share."""

    crowds: dict[str, OfCrowd]
    hit: float
    waiting: float
    running: float
    held: float


class Books:
    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.runs: dict[str, list[float]] = defaultdict(list)  # crowd -> seconds of each
        self.runs_of_callers: dict[str, list[float]] = defaultdict(list)
        self.first_tokens: dict[str, list[float]] = defaultdict(list)
        self._prompt_tokens = self._cached_tokens = 0
        self._samples: list[tuple[int, int, int]] = []

    def _counts(self, now: float) -> bool:
        return now > self.workload.warm_up_seconds

    def run(self, crowd: str, caller: str, now: float, seconds: float) -> None:
        if self._counts(now):
            self.runs[crowd].append(seconds)
            self.runs_of_callers[caller].append(seconds)

    def turn(self, crowd: str, now: float, first_token_seconds: float, output: Finished) -> None:
        if self._counts(now):
            self.first_tokens[crowd].append(first_token_seconds)
            self._prompt_tokens += output.prompt_tokens
            self._cached_tokens += output.cached_tokens

    def sample(self, waiting: int, running: int, held: int) -> None:
        self._samples.append((waiting, running, held))

    def outcome(self) -> Outcome:
        waiting, running, held = (fmean(values) for values in zip(*self._samples, strict=True)) if self._samples else (0.0, 0.0, 0.0)
        crowds = {crowd.name: self._of(crowd.name) for crowd in self.workload.kinds}
        return Outcome(crowds, self._cached_tokens / max(1, self._prompt_tokens), waiting, running, held)

    def _of(self, name: str) -> OfCrowd:
        minutes = (self.workload.seconds - self.workload.warm_up_seconds) / 60
        runs, firsts = self.runs[name], self.first_tokens[name]
        return OfCrowd(
            len(runs) / minutes, len(firsts) / minutes, percentile(runs, 0.5), percentile(runs, 0.95), percentile(firsts, 0.5),
            percentile(firsts, 0.95),
        )  # fmt: skip
