"""Do the fake provider's books add up, whatever is asked and whenever?"""

import json

from hypothesis import given
from hypothesis import strategies as st

from luftpause.scheduler.quota.headers import LimitKind, observe
from luftpause_fakes.provider_families import FAMILIES, Asked, FamilyName
from luftpause_fakes.provider_limits import Account, HiddenSpec, LimitSpec, whole_seconds

steps = st.lists(st.tuples(st.sampled_from((0.0, 0.01, 0.7, 3.0, 11.0, 61.0)), st.integers(1, 40)), min_size=1, max_size=80)


@given(steps, st.integers(0, 1))
def test_a_fixed_window_takes_its_limit_and_no_more_and_says_when_it_renews(steps: list[tuple[float, int]], cost: int) -> None:
    account, now, began, used = Account((LimitSpec("calls", "fixed", 50, 60, refused_cost=cost),)), 5.0, None, 0
    for seconds, units in steps:
        now += seconds
        if began is not None and now >= began + 60:
            began, used = None, 0
        verdict = account.ask({"calls": units, "unknown": 1e9}, now)
        fits = used + units <= 50
        assert (verdict.why is None) == fits
        if fits:
            began, used = now if began is None else began, used + units
        else:
            assert began is not None
            assert verdict.limit == "calls"
            assert abs(now + verdict.wait_seconds - (began + 60)) < 1e-6
        (left,) = account.left(now)
        assert left.remaining == 50 - used


@given(steps)
def test_a_bucket_takes_no_more_than_it_held_and_got_and_as_much_as_it_says_when_it_says(steps: list[tuple[float, int]]) -> None:
    account, now, taken = Account((LimitSpec("tokens", "bucket", 60, 60),)), 0.0, list[tuple[float, float]]()
    for seconds, units in steps:
        now += seconds
        verdict = account.ask({"tokens": units}, now)
        if verdict.why is not None:
            now += verdict.wait_seconds
            assert account.ask({"tokens": units}, now).why is None
        taken.append((now, units))
        for began, _ in taken:
            assert sum(units for at, units in taken if at >= began) <= 60 + (now - began) + 1e-3
        (left,) = account.left(now)
        assert -1e-3 <= left.remaining <= 60


@given(steps, st.sampled_from((1.0, 1.6, 6.0)), st.integers(1, 5))
def test_the_hidden_limit_takes_so_many_in_any_minute_and_none_in_a_penalty(
    steps: list[tuple[float, int]], growth: float, per_step: int
) -> None:
    hidden = HiddenSpec(10, 60, 30, growth, per_step, 200)
    account, now, taken, until = Account((LimitSpec("calls", "fixed", 1e9, 3_600),), hidden), 0.0, list[float](), 0.0
    for seconds, times in steps:
        now += seconds
        for _ in range(times):
            verdict = account.ask({"calls": 1}, now)
            if verdict.why is None:
                assert now >= until - 1e-6
                taken.append(now)
                assert sum(at > now - 60 for at in taken) <= 10
                continue
            assert verdict.why == "secondary"
            assert 0 < verdict.wait_seconds <= 200 + 1e-6
            assert now + verdict.wait_seconds >= until - 1e-6  # never shorter by what is asked meanwhile
            if growth == 1 and now < until:
                assert abs(now + verdict.wait_seconds - until) < 1e-6
            until = now + verdict.wait_seconds


def test_a_penalty_grows_by_each_so_many_refusals_and_refusals_are_paid_for() -> None:
    account = Account((LimitSpec("calls", "fixed", 100, 3_600, refused_cost=1),), HiddenSpec(10, 60, 60, 2.0, 5, 900))
    waits = [account.ask({"calls": 1}, 0.0).wait_seconds for _ in range(10 + 1 + 4 + 1 + 4 + 5 * 6)]
    assert waits[9:12] == [0, 60, 60]
    assert waits[15:17] == [120, 120]
    assert waits[20] == 240
    assert waits[-1] == 900
    assert account.left(0.0)[0].remaining == 100 - len(waits)


def test_what_an_answer_did_not_use_comes_back() -> None:
    account = Account((LimitSpec("out", "bucket", 100, 60),))
    assert account.ask({"out": 90}, 0).why is None
    account.give_back("out", 60, 0)
    account.give_back("unknown", 60, 0)
    assert account.left(0)[0].remaining == 70
    account.give_back("out", 500, 0)
    assert account.left(0)[0].remaining == 100
    assert account.ask({"out": 101}, 0).why == "too_large"


# ---- what the families tell is what the governor's parser reads -------------------------------------------------

EPOCH = 1_780_000_000.25
families = st.sampled_from(sorted(FAMILIES))
SCOPES = {"copilot": {"premium_interactions": "copilot_premium_interactions"}}


@given(families, st.lists(st.tuples(st.floats(0, 40), st.integers(1, 400), st.integers(1, 4_000)), min_size=1, max_size=60))
def test_what_a_family_tells_is_read_as_it_is_in_the_books(name: FamilyName, steps: list[tuple[float, int, int]]) -> None:
    family, now = FAMILIES[name], 0.0
    account = Account(family.limits, family.hidden)
    for seconds, prompt, answer in steps:
        now += seconds
        verdict = account.ask(family.cost(prompt, answer), now)
        left = account.left(now)
        if verdict.why is None:
            seen = observe(200, family.headers(left, EPOCH), now=EPOCH)
            assert not seen.limited
        else:
            refusal = family.refusal(verdict, left, EPOCH, Asked(prompt + answer))
            seen = observe(refusal.status, refusal.headers, _text(refusal.body), now=EPOCH)
            assert seen.limited
            assert seen.kind is (LimitKind.SECONDARY if name == "github" and verdict.why == "secondary" else LimitKind.PRIMARY)
            assert seen.wait_seconds is not None
            assert seen.wait_seconds >= verdict.wait_seconds - 0.001
        told = {sample.scope: sample for sample in seen.samples}
        for limit in left:
            sample = told[SCOPES.get(name, {}).get(limit.name, limit.name)]
            assert sample.limit == limit.limit
            assert sample.remaining is not None
            if limit.name != verdict.limit:  # Azure and Anthropic say 0 of what refused
                assert abs(sample.remaining - max(0.0, limit.remaining)) <= max(1.0, 0.0005 * limit.limit)
                assert sample.reset_seconds is not None
                assert limit.reset_seconds - 0.001 <= sample.reset_seconds <= limit.reset_seconds + 1.001


def _text(body: object) -> str:
    return body if isinstance(body, str) else json.dumps(body)


@given(st.integers(201_000, 900_000))
def test_azure_refuses_a_stream_inside_it_and_the_parser_sees_that(tokens: int) -> None:
    azure = FAMILIES["azure"]
    account = Account(azure.limits)
    assert account.ask(azure.cost(100_000, 100_000), 0).why is None
    verdict = account.ask(azure.cost(1, tokens % 200_000), 1)
    refusal = azure.refusal(verdict, account.left(1), EPOCH, Asked(tokens, stream=True))
    assert refusal.status == 200
    assert refusal.event is not None
    seen = observe(200, refusal.headers, _text(refusal.event), now=EPOCH)
    assert seen.limited
    assert seen.wait_seconds is not None
    assert seen.wait_seconds >= 59


@given(st.floats(0.0001, 1e6))
def test_whole_seconds_are_never_too_early(seconds: float) -> None:
    assert seconds - 1e-5 <= whole_seconds(seconds) <= max(1, seconds + 1)
