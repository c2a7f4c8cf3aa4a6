"""Would the promises of the rate governor notice if one of its rules were wrong?"""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from luftpause.scheduler.quota import admission, breaker, core, draft, ledger, reports
from tests.properties.test_quota import Quotas

HUNT = settings(
    max_examples=4_000, stateful_step_count=40, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

target_shut, open_, begin_episode = (
    admission._target_shut, breaker._open, breaker._begin_episode,
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


MUTANTS: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("I1 room is not looked at", admission, "_no_room", lambda *_: None),
    ("I2 nobody parks, yields or is paced", admission, "_no_pace", lambda *_: None),
    ("I2 nothing is left to better classes", ledger, "headroom", lambda *_: 0.0),
    ("I3 a block is no block", admission, "_target_shut", never_open),
    ("I4 probes have no limit", admission, "_target_shut", no_probe_limit),
    ("I4 probes of an older episode count", breaker, "_begin_episode", probes_kept),
    ("I5 leases do not end", core, "expire", leases_for_ever),
    ("I7 the order is another", admission, "promotable", lambda d: d.waiters[d.eldest.first()[1]] if d.eldest else None),
    ("I8 classes have no windows", admission, "_target_shut", no_windows),
    ("I13 a block is made shorter", breaker, "_open", shorter_blocks),
    ("I6 any fence will do", reports, "_lease", any_fence),
    ("R6 a caller's leases do not count", draft, "rank_caller", lambda d, caller: None),
]


@pytest.mark.parametrize(("module", "name", "wrong"), [mutant[1:] for mutant in MUTANTS], ids=[mutant[0] for mutant in MUTANTS])
def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, wrong: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError, ExceptionGroup)):
        run_state_machine_as_test(Quotas, settings=HUNT)
