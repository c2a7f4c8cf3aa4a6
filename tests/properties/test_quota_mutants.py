"""Would the promises of the rate governor notice if one of its rules were wrong?"""

from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from luftpause.scheduler.quota import admission, breaker, core, draft, ledger, reports, shares
from luftpause.scheduler.quota.headers import LimitKind
from tests.properties.test_quota import SAMPLES, SPEC, Quotas

HUNT = settings(
    max_examples=4_000, stateful_step_count=40, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

target_shut, open_, begin_episode = (
    admission._target_shut, breaker._open, breaker.begin_episode,
)  # fmt: skip


def never_open(d: Any, rank: int) -> Any:
    way = target_shut(d, rank)
    return way if way is None or way.why != "open" else None


def no_windows(d: Any, rank: int) -> Any:
    way = target_shut(d, rank)
    return way if way is None or way.why != "exclusive" else None


def no_probe_limit(d: Any, rank: int) -> Any:
    way = target_shut(d, rank)
    return way if way is None or way.why != "window" else None


def shorter_blocks(d: Any, wait_seconds: float) -> None:
    d.breaker = replace(d.breaker, open_until=-inf)
    open_(d, wait_seconds)


def probes_kept(d: Any, mode: Any, until: float) -> None:
    probes = d.probes
    begin_episode(d, mode, until)
    d.probes = probes


def leases_for_ever(d: Any, lease: Any) -> None:
    d.expiries = d.expiries.remove((lease.expires, lease.want))


def any_fence(d: Any, event: Any) -> Any:
    return d.leases.get(event.want)


def remembered() -> Callable[..., Any]:
    """The lease of a fence, also when it has ended."""
    seen: dict[int, Any] = {}

    def lease(d: Any, event: Any) -> Any:
        seen.update({one.fence: one for one in d.leases.values()})
        return seen.get(event.fence)

    return lease


def lend_by_chance() -> Callable[..., Any]:
    lend, calls = core.lend, count()
    return lambda d, waiter, **more: lend(d, replace(waiter, lease_seconds=waiter.lease_seconds - 1e-3 * (next(calls) % 7)), **more)


# ---- what leads there, for rules that chance would look for too long --------------------------------------------


def want(quotas: Quotas, priority: int, *, caller: int = 0, scopes: tuple[str, ...] = ("conc",)) -> None:
    quotas.somebody_wants(caller=caller, priority=priority, tokens=1, scopes=scopes, retry=False)


def refuse(quotas: Quotas, wait: float, at: int = 0) -> None:
    quotas.an_answer_comes(at=at, outcome="limited", samples=(), wait=wait, kind=LimitKind.PRIMARY, used=0)


def two_refusals(quotas: Quotas) -> None:
    want(quotas, 0)
    want(quotas, 0)
    refuse(quotas, 9.0)
    refuse(quotas, 3.0)


def a_late_refusal_beside_a_probe(quotas: Quotas) -> None:
    want(quotas, 0)
    want(quotas, 0)
    refuse(quotas, 0.0)
    quotas.time_passes(seconds=0.5)
    want(quotas, 0)
    refuse(quotas, 3.0)


def two_after_a_block(quotas: Quotas) -> None:
    want(quotas, 0)
    refuse(quotas, 3.0)
    want(quotas, 0)
    want(quotas, 0)
    quotas.time_passes(seconds=4.0)


def a_standard_one_after_a_block(quotas: Quotas) -> None:
    want(quotas, 0)
    refuse(quotas, 3.0)
    want(quotas, 1)
    quotas.time_passes(seconds=4.0)


def a_cascade(quotas: Quotas) -> None:
    quotas.callers_are_refused_one_after_the_other(seconds=0.0)
    want(quotas, 0, caller=0)
    want(quotas, 0, caller=3)
    quotas.time_passes(seconds=15.0)


def two_standard_ones_in_amber(quotas: Quotas) -> None:
    quotas.limits_are_seen(samples=SAMPLES[1])
    want(quotas, 1, scopes=("req",))
    want(quotas, 1, scopes=("req",))


def background_after_a_loss(quotas: Quotas) -> None:
    quotas.it_is_configured_anew(spec=SPEC, learning_seconds=20.0)
    want(quotas, 2)


def a_cascade_while_one_is_in_flight(quotas: Quotas) -> None:
    want(quotas, 0, caller=4)
    quotas.callers_are_refused_one_after_the_other(seconds=0.0)
    want(quotas, 0, caller=2)
    quotas.time_passes(seconds=9.0)  # the block ends, the lease has not


def one_who_was_served_and_one_who_was_not(quotas: Quotas) -> None:
    for _ in range(4):
        want(quotas, 0, caller=4)
    for caller in (2, 2, 3):
        want(quotas, 0, caller=caller)
    for _ in range(2):
        quotas.a_holder_renews_or_releases(at=0, released=True)


def owners_at_work(quotas: Quotas) -> None:
    """Of three requests each of them is forecast to want one."""
    quotas.an_owner_works(caller="c0", calls=2)
    quotas.an_owner_works(caller="c1", calls=2)
    quotas.limits_are_seen(samples=SAMPLES[1])


def a_stranger_beside_owners(quotas: Quotas) -> None:
    owners_at_work(quotas)
    want(quotas, 1, caller=3, scopes=("req",))


def an_owner_beside_another(quotas: Quotas) -> None:
    owners_at_work(quotas)
    want(quotas, 0, caller=4, scopes=("req",))
    want(quotas, 1, caller=0, scopes=("req",))


def a_large_one_of_background(quotas: Quotas) -> None:
    want(quotas, 2, scopes=("tok",))
    quotas.somebody_wants(caller=0, priority=2, tokens=1_200, scopes=("tok",), retry=False)  # of 1,499 it leaves a quarter


def background_behind_a_standard_one(quotas: Quotas) -> None:
    want(quotas, 2, caller=3)
    for _ in range(3):
        want(quotas, 0)
    want(quotas, 2, caller=4)
    want(quotas, 1, caller=2)
    quotas.a_holder_renews_or_releases(at=1, released=True)


SCRIPTS = {
    "I2 nothing is left to better classes": a_large_one_of_background,
    "I7 the order is another": background_behind_a_standard_one,
    "R6 a caller's leases do not count": one_who_was_served_and_one_who_was_not,
    "R10 many at a time in a cascade": a_cascade_while_one_is_in_flight,
    "shares: nothing is kept for their owners": a_stranger_beside_owners,
    "shares: owners wait for what is kept for them": an_owner_beside_another,
    "I13 a block is made shorter": two_refusals,
    "I4 probes of an older episode count": a_late_refusal_beside_a_probe,
    "I4 probes have no limit": two_after_a_block,
    "I8 classes have no windows": a_standard_one_after_a_block,
    "I2 nobody parks, yields or is paced": two_standard_ones_in_amber,
    "R10 upstream is not first": a_cascade,
    "P2 goes while it is not known what is out": background_after_a_loss,
}


def played(script: Callable[[Quotas], None]) -> None:
    quotas = Quotas()
    script(quotas)
    quotas.indexes_are_what_a_recount_says()
    quotas.teardown()


MUTANTS: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("I1 room is not looked at", admission, "_no_room", lambda *_: None),
    ("I2 nobody parks, yields or is paced", admission, "_no_pace", lambda *_: None),
    ("I2 nothing is left to better classes", ledger, "headroom", lambda *_: 0.0),
    ("I3 a block is no block", admission, "_target_shut", never_open),
    ("I4 probes have no limit", admission, "_target_shut", no_probe_limit),
    ("I4 probes of an older episode count", breaker, "begin_episode", probes_kept),
    ("I5 leases do not end", core, "expire", leases_for_ever),
    ("I7 the order is another", admission, "promotable", lambda d: d.waiters[d.eldest.first()[1]] if d.eldest else None),
    ("I8 classes have no windows", admission, "_target_shut", no_windows),
    ("I13 a block is made shorter", breaker, "_open", shorter_blocks),
    ("I6 any fence will do", reports, "_lease", any_fence),
    ("I9 a lease can be settled twice", reports, "_lease", remembered()),
    ("I11 something else than the events decides", core, "lend", lend_by_chance()),
    ("R6 a caller's leases do not count", draft, "rank_caller", lambda d, caller: None),
    ("R10 many at a time in a cascade", admission, "is_sequential", lambda d: False),
    ("R10 upstream is not first", draft, "is_sequential", lambda d: False),
    ("shares: nothing is kept for their owners", admission, "_kept", lambda *_: 0.0),
    ("shares: owners wait for what is kept for them", shares, "is_entitled", lambda *_: False),
    ("P2 goes while it is not known what is out", admission, "_not_asked", lambda *_: None),
]


@pytest.mark.parametrize(("name", "module", "rule", "wrong"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str, module: Any, rule: str, wrong: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, rule, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError, ExceptionGroup)):
        played(SCRIPTS[name]) if name in SCRIPTS else run_state_machine_as_test(Quotas, settings=HUNT)


@pytest.mark.parametrize("script", [*dict.fromkeys(SCRIPTS.values())], ids=lambda script: script.__name__)
def test_nothing_is_noticed_where_no_rule_is_wrong(script: Callable[[Quotas], None]) -> None:
    played(script)


def test_each_script_has_its_mutant() -> None:
    assert set(SCRIPTS) <= {name for name, *_ in MUTANTS}
