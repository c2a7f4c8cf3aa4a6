"""Which model names does a pattern stand for?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.scheduler.core.serving import fits

TEXT = st.text("ab*", max_size=7)


@pytest.mark.parametrize(
    ("pattern", "model", "whether"),
    [
        ("*", "anything", True),
        ("*", "", True),
        ("gpt-*", "gpt-5", True),
        ("gpt-*", "gpt", False),
        ("*-mini", "gpt-5-mini", True),
        ("openai/*/latest", "openai/gpt/latest", True),
        ("openai/*/latest", "openai/latest", False),
        ("a*a", "a", False),
        ("gpt-?", "gpt-5", False),
        ("gpt.*", "gpt-5", False),
        ("gpt-5", "gpt-5", False),
    ],
)
def test_only_the_star_stands_for_anything(pattern: str, model: str, whether: bool) -> None:
    assert fits((pattern,), model) is whether


@given(TEXT.filter(lambda text: "*" in text), TEXT)
def test_a_pattern_fits_what_the_same_regular_expression_does(pattern: str, model: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert fits((pattern,), model) is (re.fullmatch(expression, model) is not None)
