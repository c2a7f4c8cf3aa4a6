"""Is a tool call's run told only where it is certain?"""

from luftpause.dataplane import called
from luftpause.dataplane.called import CallRuns

ID = "toolu_01A09q90qw90lq917835lq9"


def test_an_id_of_one_run_names_it_as_long_as_it_is_remembered():
    calls = CallRuns(1800)
    calls.saw(0, [ID], "run_a", "")
    calls.saw(10, [ID], "run_a", "")
    assert calls.run_of(1809, ID, "") == "run_a"
    assert calls.run_of(1810, ID, "") == ""
    assert calls.run_of(0, "toolu_other_01A09q90qw90", "") == ""


def test_an_id_that_two_runs_have_had_names_none_until_it_is_forgotten():
    calls = CallRuns(1800)
    calls.saw(0, [ID], "run_a", "")
    calls.saw(1, [ID], "run_b", "")
    assert calls.run_of(2, ID, "") == ""
    calls.saw(3, [ID], "run_b", "")
    assert calls.run_of(4, ID, "") == ""
    calls.saw(1804, [ID], "run_b", "")
    assert calls.run_of(1804, ID, "") == "run_b"


def test_ids_that_engines_give_again_and_again_name_nobody():
    calls = CallRuns(1800)
    calls.saw(0, ["call_0", "functions.search_pages:0", "call_search_pages_12", "short"], "run_a", "")
    for each in ("call_0", "functions.search_pages:0", "call_search_pages_12", "short"):
        assert calls.run_of(0, each, "") == ""


def test_a_principal_hears_of_its_own_runs_and_the_shared_token_of_all():
    calls = CallRuns(1800)
    calls.saw(0, [ID], "run_a", "alice")
    assert calls.run_of(0, ID, "alice") == calls.run_of(0, ID, "") == "run_a"
    assert calls.run_of(0, ID, "bob") == ""


def test_ids_that_name_nobody_any_more_are_swept():
    calls = CallRuns(1800)
    for number, each in enumerate("abc"):
        calls.saw(number, [f"toolu_{each}01A09q90qw90lq91x"], "run_a", "")
    calls.saw(3, ["toolu_a01A09q90qw90lq91x"], "run_a", "")
    calls.sweep(1801.5)
    assert len(calls) == 2
    assert [calls.run_of(1801.5, f"toolu_{each}01A09q90qw90lq91x", "") for each in "abc"] == ["run_a", "", "run_a"]
    calls.sweep(1803)
    assert len(calls) == 0


def test_only_the_newest_are_remembered(monkeypatch):
    monkeypatch.setattr(called, "CALLS_MAX", 2)
    calls = CallRuns(1800)
    ids = [f"toolu_{letter}01A09q90qw90lq91x" for letter in "abc"]
    for each in ids:
        calls.saw(0, [each], "run_a", "")
    assert [calls.run_of(0, each, "") for each in ids] == ["", "run_a", "run_a"]
