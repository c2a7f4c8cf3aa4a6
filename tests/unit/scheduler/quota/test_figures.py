"""Does the governor go on whatever figures an answer tells of its limits?"""

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.events import AnswerReported, LimitsObserved, QuotaWanted, TargetConfigured, Tick
from luftpause.scheduler.quota.headers import observe
from luftpause.scheduler.quota.model import Settings, State
from luftpause.scheduler.quota.profiles import target_spec
from luftpause.scheduler.quota.samples import SCOPE_CHARS_MAX, SCOPES_MAX, Gathered
from luftpause.scheduler.quota.snapshot import Moment, from_snapshot, to_snapshot

NOW = 1_780_000_000.0
Headers = dict[str, str]
FIGURES = ["-5", "0", "1e-320", "1e-300", "1e-9", "1", "50", "1e9", "1e18", "1e300", "999999999999999999", "nan", "inf", "-0", ""]
NAMES = ["requests", "tokens", "core", "", "\x7f\u00fc", "x" * 200]


def headers(name: str, one: str, two: str, three: str, four: str) -> list[Headers]:
    """An answer of each family with these figures."""
    return [
        {"ratelimit-policy": f'"{name}";q={one};w={two}', "ratelimit": f'"{name}";r={three};t={four}'},
        {"ratelimit-limit": f"{one}, {one};w={two}", "ratelimit-remaining": three, "ratelimit-reset": four, "ratelimit-name": name},
        {"ratelimit": f"limit={one}, remaining={three}, reset={four}", "ratelimit-policy": f"{one};w={two}"},
        {"x-ratelimit-limit": one, "x-ratelimit-remaining": three, "x-ratelimit-reset": four, "x-ratelimit-resource": name},
        {f"x-ratelimit-{part}-requests": figure for part, figure in zip(PARTS, (one, three, four, two), strict=True)},
        {"x-quota-snapshot-chat": f"ent={one}&rem={three}&rst={four}", "retry-after": two},
    ]


PARTS = ("limit", "remaining", "reset", "renewalperiod")


def after(told: Headers, status: int, profile: str = "auto") -> State:
    """A governor that was told so by two answers, with a call between them, and some hours later."""
    state = core.govern(core.initial(Settings(), 0.0), TargetConfigured(0.0, target_spec("t", profile))).state
    seen = observe(status, told, "", NOW)
    for at in (1.0, 2.0):
        state = core.govern(state, LimitsObserved(at, "t", seen.samples)).state
    wanted = QuotaWanted(3.0, "t", "w", "agent", 1, (("requests", 1.0), ("tokens", 100.0)), 120.0)
    step = core.govern(state, wanted)
    fences = [lease.fence for lease in step.state.targets["t"].leases.values()]
    outcome = "limited" if seen.limited else "ok"
    for fence in fences:
        reported = AnswerReported(4.0, "t", "w", fence, outcome, (), seen.samples, seen.wait_seconds, seen.kind)
        step = core.govern(step.state, reported)
    state = step.state
    for at in (5.0, 70.0, 4_000.0, 90_000.0):
        state = core.govern(state, Tick(at)).state
        state = core.govern(state, QuotaWanted(at, "t", f"w{at}", "agent", 2, (("requests", 1.0),), 120.0)).state
    return state


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ('"x";q=10;w=-5', '"x";r=1;t=1'),  # no window is that long
        ('"x";q=10;w=1e-300', '"x";r=1;t=1e-300'),  # windows that nobody can count
        ('"x";q=1e-320;w=60', '"x";r=0;t=1'),  # a limit that is nothing in the next quotient
        ('"x";q=1e300;w=60', '"x";r=1e300;t=1e300'),
        ('"";q=10;w=60', '"";r=0;t=60'),  # a name that would stand for the whole target
    ],
)
def test_figures_that_nobody_can_count_with_stop_nothing(policy: str, told: str, status: int) -> None:
    state = after({"ratelimit-policy": policy, "ratelimit": told}, status)

    for name, scope in state.targets["t"].scopes.items():
        assert name
        assert all(isfinite(figure) for figure in (scope.limit, scope.remaining, scope.out, scope.spec.window_seconds))
    assert "t" in from_snapshot(to_snapshot(state, state.now, Moment(NOW)), core.initial(Settings(), 0.0), Moment(NOW)).targets


@given(st.sampled_from(NAMES), *[st.sampled_from(FIGURES)] * 4, st.sampled_from([200, 403, 429]), st.sampled_from(["auto", "github"]))
@settings(deadline=None, max_examples=40)
def test_no_family_of_headers_stops_the_governor(
    name: str, one: str, two: str, three: str, four: str, status: int, profile: str
) -> None:  # fmt: skip
    for told in headers(name, one, two, three, four):
        after(told, status, profile)


def test_a_scope_is_named_so_that_it_can_be_shown() -> None:
    found = Gathered()
    for name in ("", "\x00\n", " a\x1bb ", "y" * 200):
        found.put(name, "remaining", 1.0)
    assert [sample.scope for sample in found.samples()] == ["default", "ab", "y" * SCOPE_CHARS_MAX]


def test_one_answer_tells_of_so_many_limits_at_most() -> None:
    seen = observe(200, {f"x-ratelimit-limit-s{at}": "10" for at in range(10_000)}, "", NOW)
    assert len(seen.samples) == SCOPES_MAX


def test_of_what_is_told_the_figures_that_make_sense_are_taken() -> None:
    seen = observe(200, {"ratelimit-policy": '"x";q=10;w=-5', "ratelimit": '"x";r=3;t=7'}, "", NOW)
    (sample,) = seen.samples
    assert (sample.scope, sample.limit, sample.remaining, sample.reset_seconds, sample.window_seconds) == ("x", 10.0, 3.0, 7.0, None)
