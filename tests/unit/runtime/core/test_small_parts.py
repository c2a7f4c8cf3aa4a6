"""Do the core's small functions keep their promises?"""

import math
import time

import pytest

from luftpause.runtime.core.choose import allowed
from luftpause.runtime.core.recover import recover
from luftpause.runtime.core.retries import spread_of, wait_seconds
from luftpause.runtime.core.text import shorten, whole, whole_json
from tests.support.agents import spec


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("plain", "plain"),
        ("\ud83e", "\ufffd"),
        ("a\ud83eb", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_halves_are_joined_and_lone_ones_replaced(broken: str, mended: str) -> None:
    assert whole(broken) == mended
    assert whole_json({broken: [broken, 1, None]}) == {mended: [mended, 1, None]}


def test_a_cut_text_says_so() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd" * 1000, 10) == "abcdabcdab\n[cut: 10 of 4,000 characters shown]"


@pytest.mark.parametrize(
    ("limited", "retry_after_s", "failures", "wait"),
    [
        (True, None, 0, 1.0),
        (True, 7.0, 0, 7.0),
        (True, 0.0, 9, 0.1),
        (True, 1e-300, 9, 0.1),
        (True, 0.25, 9, 0.25),
        (True, -1.0, 0, 1.0),
        (True, math.inf, 0, 1.0),
        (True, 1e300, 0, 86_400.0),
        (False, None, 1, None),
        (False, 0.0, 1, 0.5),
        (False, 0.0, 2, 1.0),
        (False, 0.0, 3, 2.0),
        (False, 5.0, 1, 5.0),
        (False, 1e6, 1, 60.0),
        (False, 0.0, 4, None),
    ],
)
def test_a_turn_without_an_answer_is_tried_again_after(
    limited: bool, retry_after_s: float | None, failures: int, wait: float | None
) -> None:
    def waits(spread: float) -> float | None:
        return wait_seconds(limited=limited, retry_after_s=retry_after_s, failures=failures, retries_max=3, spread=spread)

    assert waits(0.0) == wait
    assert waits(0.5) == (None if wait is None else pytest.approx(wait + min(wait / 8, 2.5)))


def test_runs_that_failed_together_come_back_one_by_one_and_each_the_same_whenever_it_is_asked() -> None:
    spreads = sorted(spread_of(f"run_{number}", 1) for number in range(1000))
    assert all(0 <= each < 1 for each in spreads)
    assert all(abs(each - index / 1000) < 0.06 for index, each in enumerate(spreads)), "evenly spread"
    assert len({spread_of("run_1", tries) for tries in range(100)}) == 100
    assert spread_of("run_1", 1) == spread_of("run_1", 1)


def test_tools_are_chosen_by_name_glob_original_name_or_server() -> None:
    tools = {name: spec(name) for name in ("read_file", "write_file", "fetch")}
    assert list(allowed(tools, None)) == ["read_file", "write_file", "fetch"]
    assert list(allowed(tools, ("*_file",))) == ["read_file", "write_file"]
    assert list(allowed(tools, ("server__fetch", "nobody"))) == ["fetch"]
    assert allowed(tools, ()) == {}


@pytest.mark.parametrize(
    "text",
    [
        '"\\' * 300_000,
        "[" + "," * 100_000 + " " * 100_000 + "x",
        "```" + "a" * 1_000 + "\n" * 300_000,
        "```" + " " * 100_000 + "\n" + " " * 100_000,
        "<|python_tag|>" * 60_000 + "x",
        "<tool_call>" * 60_000,
        "```json\n{" * 60_000,
        "\n{" * 300_000,
    ],
    ids=["quotes", "commas", "fence", "blanks", "python tags", "tool calls", "fences", "braces"],
)
def test_reading_broken_text_takes_time_in_proportion_to_its_length(text: str) -> None:
    began = time.process_time()
    assert recover(text, {"t"}) is None
    assert time.process_time() - began < 4, "a quadratic search takes minutes"
