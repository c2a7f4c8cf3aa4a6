"""Do the scripts in Redis doubt, and obey an operator, as the governor's core does? Step by step, as chance would look for it too long."""

import random
from collections.abc import Callable
from typing import Literal

import pytest

from luftpause.scheduler.governor.store.port import Enable, Report, Reserve, Waiting
from luftpause.scheduler.governor.store.redis_store import script
from luftpause.scheduler.quota.events import AnswerReported, Tick
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Mode
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import TargetSpec
from tests.integration.quota_store.test_differential import SPECS, TARGET, Both, Scripts, scope
from tests.support.redis_server import RedisServer


@pytest.fixture
def prefix() -> str:
    return f"o{random.getrandbits(64):x}"


def call(both: Both, cost: float, outcome: Literal["ok", "limited", "error"] = "ok", *samples: Sample, wait: float | None = None) -> None:
    """One call that is granted, and its answer."""
    want = ask(both, cost)
    assert want in both.fences
    answer(both, want, outcome, *samples, wait=wait)


def ask(both: Both, cost: float) -> str:
    both.want(0, (("core", cost),), 60.0)
    return f"w{both.wants}"


def answer(
    both: Both, want: str, outcome: Literal["ok", "limited", "error"] = "ok", *samples: Sample, wait: float | None = None
) -> None:  # fmt: skip
    kind = LimitKind.PRIMARY if outcome == "limited" else None
    both.report(want, AnswerReported(both.now, TARGET, want, both.fences[want][0], outcome, (), samples, wait, kind))
    del both.fences[want]


def later(both: Both, seconds: float) -> None:
    both.now += seconds
    both.govern(Tick(both.now))
    both.alike(both.scripts.ask(both.now, Waiting(node="n", scopes=both.asked())))


def a_tiny_limit(both: Both) -> None:
    call(both, 5, "ok", Sample("core", 2, 1, 1e9))
    later(both, 61)
    tries = ask(both, 5)
    assert tries in both.fences
    assert ask(both, 5) not in both.fences
    answer(both, tries, "error")
    later(both, 86_400)
    assert ask(both, 2) in both.fences


def a_month_that_is_used_up(both: Both) -> None:
    call(both, 5, "ok", Sample("core", 20, 0, 2e6))
    later(both, 86_399)
    assert ask(both, 1) not in both.fences
    later(both, 1)
    tries = ask(both, 1)
    assert tries in both.fences
    assert ask(both, 1) not in both.fences
    answer(both, tries, "ok", Sample("core", 20, 0, 1.9e6))
    assert ask(both, 1) not in both.fences


def an_operator_after_years(both: Both) -> None:
    call(both, 5, "limited", Sample("core", 3, 0, 1e9), wait=1e9)
    both.enable()
    assert ask(both, 1) in both.fences
    assert ask(both, 1) not in both.fences
    answer(both, f"w{both.wants - 1}")
    call(both, 1)
    assert both.target.breaker.mode is Mode.CLOSED
    assert ask(both, 1) in both.fences
    assert ask(both, 1) not in both.fences, "it starts slowly"


def an_operator_after_a_strike(both: Both) -> None:
    call(both, 1)
    call(both, 4, "limited")
    both.enable()
    assert both.target.scopes["core"].remaining == 15
    call(both, 1, "limited")
    assert both.target.breaker.open_until == pytest.approx(both.now + 2.25)


SCRIPTS = {
    a_tiny_limit: SPECS[0],
    a_month_that_is_used_up: TargetSpec(TARGET, (scope("core", "fixed", 20, 2_592_000),)),
    an_operator_after_years: SPECS[0],
    an_operator_after_a_strike: SPECS[0],
}
SCRIPTED = {
    "a wait of years is believed": ("math.min(told_seconds, TOLD_SECONDS_MAX)", "told_seconds"),
    "a reset of years is believed": ("math.min(sample.reset_seconds, math.max(scope.window, TOLD_SECONDS_MAX))", "sample.reset_seconds"),
    "no limit is doubted": ("if told.cost > scope.limit then", "if false then"),
    "any number of calls find out": ("if scope.out > scope.limit then return 'tried', 0.25 end", ""),
    "no rest is doubted": ("if doubtful and scope.out <= NEAR then return nil end", ""),
    "a rest is doubted by any number": ("if doubtful and scope.out <= NEAR then return nil end", "if doubtful then return nil end"),
    "debts have no end": ("math.max(-scope.limit, scope.remaining - units)", "scope.remaining - units"),
    "what was told is not forgotten": ("if told then -- what was counted here", "if false then --"),
    "what was counted is forgotten": ("if told then -- what was counted here", "if true then --"),
    "an enabled target begins at full speed": (
        "breaker.episode + 1, 1, 0, 0\nbreaker.strikes",
        "breaker.episode + 1, INF, 0, 0\nbreaker.strikes",
    ),
    "strikes outlive an operator": ("breaker.strikes, breaker.limited_at = 0, -INF", ""),
    "scopes stay blocked": ("scope.limit, scope.blocked_until = scope.told_limit, -INF", "scope.limit = scope.told_limit"),
    "a told limit outlives an operator": ("scope.limit, scope.blocked_until = scope.told_limit, -INF", "scope.blocked_until = -INF"),
}


def follow(lead: Callable[[Both], None], scripts: Scripts) -> None:
    try:
        lead(Both(scripts, SCRIPTS[lead]))
    finally:
        scripts.close()


@pytest.mark.parametrize("lead", SCRIPTS, ids=lambda lead: lead.__name__)
def test_an_operator_and_doubts_are_understood_alike(redis: RedisServer, prefix: str, lead: Callable[[Both], None]) -> None:
    follow(lead, Scripts(redis, prefix))


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_wrong_rule_of_these_is_noticed(redis: RedisServer, prefix: str, name: str) -> None:
    old, new = SCRIPTED[name]
    assert any(old in script(question).source for question in (Reserve, Report, Enable)), "the mutant fits no line any more"
    for number, lead in enumerate(SCRIPTS):
        try:
            follow(lead, Scripts(redis, f"{prefix}{number}", (old, new)))
        except AssertionError:
            return
    pytest.fail("nothing noticed it")
