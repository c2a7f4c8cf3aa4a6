"""Does `luftpause bench` live through seeds, tell what failed, and exit accordingly?"""

import json

from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause_bench.sim.hunting import hunt
from luftpause_bench.sim.mutants import MUTANTS, alive


def called(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout


def test_many_seeds_are_summed_up_and_their_number_of_processes_changes_nothing() -> None:
    code, text = called("sim", "--seeds", "2", "--first-seed", "100", "--jobs", "1", "--json")
    alone = json.loads(text)
    assert code == 0
    assert (alone["first_seed"], alone["seeds"], alone["failures"]) == (100, 2, [])
    assert alone["events"] > alone["placed"] > 0
    code, text = called("sim", "--seeds", "2", "--first-seed", "100", "--jobs", "2", "--json")
    together = json.loads(text)
    assert code == 0
    assert {key: together[key] for key in ("events", "placed", "seen")} == {key: alone[key] for key in ("events", "placed", "seen")}


def test_one_seed_shows_what_happened_last() -> None:
    code, text = called("sim", "--seed", "103")
    assert code == 0
    assert "Tick(" in text
    assert "seed 103: every promise was kept" in text


def test_a_broken_promise_is_named_with_the_command_that_shows_it_and_exits_with_1() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "no cap")
    seed = hunt(mutant).seed
    assert seed is not None
    with alive(mutant):
        code, text = called("sim", "--seeds", "1", "--first-seed", str(seed), "--jobs", "1")
        assert code == 1
        assert "1 failed" in text
        assert f"again: luftpause bench sim --seed {seed}" in text
        code, text = called("sim", "--seed", str(seed), "--json")
        assert code == 1
        assert "in flight and a cap of" in json.loads(text)["broken"]


def test_what_an_event_costs_is_asked_with_its_own_options() -> None:
    code, text = called("decide_cost", "--runs", "10", "--events", "20", "--passes", "1", "--memory-runs", "40", "--json")
    assert code == 0
    found = json.loads(text)
    assert [(row["runs"], row["events"]) for row in found["costs_microseconds"]] == [(10, 20)]
    assert 0 < found["memory"]["bytes_per_run"] < 10_000
