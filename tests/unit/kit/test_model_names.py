"""Does a model's name fit what is configured?"""

import pytest

from luftpause.kit.model_names import fits, is_pattern


@pytest.mark.parametrize(
    ("pattern", "model", "expected"),
    [
        ("m", "m", True),
        ("m", "mm", False),
        ("*", "anything", True),
        ("*", "", True),
        ("llama-*", "llama-3", True),
        ("llama-*", "llama", False),
        ("*-instruct", "a-instruct", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "ac", False),
        ("ab*bc", "abc", False),
        ("a*b*b", "ab", False),
        ("a**b", "ab", True),
        ("a.c", "abc", False),
    ],
)
def test_a_star_stands_for_anything(pattern: str, model: str, expected: bool) -> None:
    assert fits(pattern, model) is expected
    assert is_pattern(pattern) is ("*" in pattern)
