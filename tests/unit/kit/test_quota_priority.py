"""How urgent is a call for quotas?"""

import pytest

from luftpause.kit.config_governor import CallerConfig
from luftpause.kit.quota_priority import PriorityNotAllowedError, priority_of

CALLERS = {
    "deploy": CallerConfig(priority=0),
    "planner": CallerConfig(may_claim=True),
    "crawler": CallerConfig(priority=2),
}
ROOT = {"*": CallerConfig(priority=2, may_claim=True)}


@pytest.mark.parametrize(
    ("caller", "claimed", "batch", "priority"),
    [
        ("somebody", None, False, 1),
        ("somebody", None, True, 2),
        ("", None, False, 1),
        ("deploy", None, True, 0),
        ("deploy", 2, False, 2),
        ("planner", 0, False, 0),
        ("planner", None, True, 2),
        ("crawler", None, False, 2),
        ("somebody", 2, False, 2),
        ("somebody", 2, True, 2),
        ("somebody", 1, False, 1),
    ],
)
def test_a_call_is_as_urgent_as_its_caller_is_or_as_it_may_claim(caller: str, claimed: int | None, batch: bool, priority: int) -> None:
    assert priority_of(CALLERS, caller, claimed, batch=batch) == priority


@pytest.mark.parametrize(
    ("caller", "claimed", "batch"), [("somebody", 0, False), ("somebody", 1, True), ("crawler", 1, False), ("", 0, False)]
)
def test_a_claim_that_is_too_urgent_is_refused_and_says_what_would_allow_it(caller: str, claimed: int, batch: bool) -> None:
    with pytest.raises(PriorityNotAllowedError, match="may_claim") as raised:
        priority_of(CALLERS, caller, claimed, batch=batch)
    assert (raised.value.status, raised.value.code) == (403, "priority_not_allowed")


def test_who_is_not_named_is_what_the_star_says_and_who_is_named_is_not() -> None:
    assert priority_of(ROOT, "anybody", None, batch=False) == 2
    assert priority_of(ROOT, "anybody", 0, batch=False) == 0
    named = ROOT | {"plain": CallerConfig()}
    assert priority_of(named, "plain", None, batch=False) == 1
    with pytest.raises(PriorityNotAllowedError):
        priority_of(named, "plain", 0, batch=False)
