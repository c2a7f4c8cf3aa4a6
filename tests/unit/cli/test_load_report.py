"""Are the figures of a load right?"""

import pytest

from luftpause.cli.load_report import Outcome, Report, RoundRecord, RunRecord, Spread, decide_report, report, spread


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


def test_what_ends_in_the_warm_up_does_not_count_and_a_run_across_it_counts_with_its_later_turns() -> None:
    def turn(at: float) -> RoundRecord:
        return RoundRecord(at, 2.0, 0.5, 100, 50, 10, 1)

    early = run(seconds=9, rounds=(turn(0), turn(7)))
    across = run(seconds=8, began_s=5, rounds=(turn(5), turn(11)), first_token_s=(0.5, 0.5), prompt_tokens=200)
    never_ended = run(Outcome.UNFINISHED, seconds=30, began_s=0)
    failed = run(Outcome.FAILED, seconds=3, error="HTTP 503")
    batch = report([early, across, never_ended, failed], 40, warm_up_s=10).classes["batch"]
    assert (batch.completed, batch.failed, batch.unfinished, batch.errors) == (1, 0, 1, {})
    assert batch.runs_per_min == pytest.approx(2)
    assert batch.run_s == Spread(8, 8, 8)
    assert (batch.turns, batch.prompt_tokens, batch.first_token_s) == (3, 100, Spread(0.5, 0.5, 0.5))
    assert batch.turns_per_min == pytest.approx(6)


def test_questions_count_as_what_was_done_and_as_failures() -> None:
    asked = decide_report([0.1, 0.3], ["HTTP 500", "HTTP 500"], 60)
    assert (asked.answered, asked.failed, asked.per_min, asked.seconds) == (2, 2, 2, Spread(0.1, 0.3, 0.3))
    whole = Report(60, {}, decide=asked)
    assert (whole.completed, whole.failed) == (2, 2)
    assert decide_report([], [], 60).seconds is None
