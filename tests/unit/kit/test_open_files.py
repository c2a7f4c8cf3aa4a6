"""Does a process ask for the files that its system lets it have open?"""

import resource

import pytest

from luftpause.kit.open_files import OPEN_FILES, allow_more

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "asked"),
    [
        (1024, 524_288, OPEN_FILES), (1024, 4096, 4096), (1024, 1024, None), (1024, ENDLESS, OPEN_FILES), (ENDLESS, ENDLESS, None),
        (200_000, 524_288, None),
    ],
)  # fmt: skip
def test_a_small_limit_is_raised_and_a_large_one_stays(soft: int, hard: int, asked: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    allow_more()
    assert set_to == ([(asked, hard)] if asked else [])


def test_a_system_that_refuses_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    allow_more()
