"""Are the figures of a load right?"""

import pytest

from luftpause.cli.load_report import Outcome, RunRecord, Spread, report, spread


def run(outcome: Outcome = Outcome.COMPLETED, seconds: float = 1.0, turn_class: str = "batch", **values: object) -> RunRecord:
    return RunRecord(turn_class=turn_class, outcome=outcome, seconds=seconds, turns=2, **values)  # pyright: ignore[reportArgumentType]


def test_percentiles_are_values_that_were_measured() -> None:
    assert spread([float(n) for n in range(1, 101)]) == Spread(50, 95, 99)
    assert spread([3.0]) == Spread(3, 3, 3)
    assert spread([1.0, 2.0]) == Spread(1, 2, 2)
    assert spread([]) is None


def test_runs_per_minute_count_completed_runs_only() -> None:
    result = report([run(), run(), run(Outcome.FAILED, error="HTTP 503"), run(Outcome.UNFINISHED)], seconds=30)
    batch = result.classes["batch"]
    assert batch.runs_per_min == pytest.approx(4)
    assert (batch.completed, batch.failed, batch.unfinished) == (2, 1, 1)
    assert batch.errors == {"HTTP 503": 1}
    assert (result.completed, result.failed) == (2, 1)


def test_run_times_leave_out_runs_that_did_not_complete() -> None:
    result = report([run(seconds=1), run(Outcome.UNFINISHED, seconds=50)], seconds=60)
    assert result.classes["batch"].run_s == Spread(1, 1, 1)


def test_classes_are_reported_apart() -> None:
    result = report([run(turn_class="batch"), run(turn_class="interactive", first_token_s=(0.1, 0.3))], seconds=60)
    assert result.classes["batch"].first_token_s is None
    assert result.classes["interactive"].first_token_s == Spread(0.1, 0.3, 0.3)


def test_the_share_from_cache_is_of_all_prompt_tokens() -> None:
    result = report([run(prompt_tokens=300, cached_tokens=100), run(prompt_tokens=100, cached_tokens=100)], seconds=60)
    assert result.classes["batch"].cached_share == pytest.approx(0.5)
    assert report([run()], seconds=60).classes["batch"].cached_share is None
