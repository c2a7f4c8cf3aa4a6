"""Does a model's name fit what is configured?"""

from typing import Final

ANYTHING: Final = "*"  # in a configured name: any characters, or none


def is_pattern(name: str) -> bool:
    return ANYTHING in name


def fits(pattern: str, model: str) -> bool:
    """Is it that name, or one that the pattern stands for?"""
    first, *others = pattern.split(ANYTHING)
    if not others:
        return pattern == model
    *inner, last = others
    at, end = len(first), len(model) - len(last)
    if at > end or not model.startswith(first) or not model.endswith(last):
        return False
    for part in inner:  # leftmost first leaves most for those that follow
        found = model.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
