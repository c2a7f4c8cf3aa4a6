"""Does a profile say what its provider documents, and does a target learn the rest from answers?"""

import pytest

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.decisions import RefuseCode
from luftpause.scheduler.quota.events import LimitsObserved, QuotaWithdrawn, TargetConfigured
from luftpause.scheduler.quota.headers import observe
from luftpause.scheduler.quota.learning import WINDOWS
from luftpause.scheduler.quota.model import Origin, Settings
from luftpause.scheduler.quota.profiles import PROFILES, call_cost, target_spec, turn_cost
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.unit.scheduler.quota.header_cases import CASES, NOW, Case
from tests.unit.scheduler.quota.test_core import Desk


def desk(profile: str, **more: object) -> Desk:
    made = Desk()
    made.send(TargetConfigured(0.0, target_spec("t", profile, **more)))  # pyright: ignore[reportArgumentType]
    return made


def shape(d: Desk, name: str) -> tuple[str, float, float, tuple[str, ...]]:
    spec = d.scope(name).spec
    return spec.kind, d.scope(name).limit, spec.window_seconds, spec.counts


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_makes_a_target(profile: str) -> None:
    spec = target_spec("t", profile)
    assert (spec.name, spec.profile) == ("t", profile)
    assert spec.learns is not None


def test_github_never_lets_more_than_900_points_out_in_any_minute() -> None:
    d = desk("github")
    sent: list[float] = []
    while d.now < 180.0:
        for _ in range(200):
            if not d.granted(d.want(f"w{len(sent)}", 0, caller="c", requests=1.0, points=1.0)):
                d.send(QuotaWithdrawn(d.now, "t", f"w{len(sent)}"))
                break
            d.report(f"w{len(sent)}")
            sent.append(d.now)
        d.until(d.now + 0.5)
    most = max(sum(at - 60.0 < other <= at for other in sent) for at in sent)
    assert 850 < most <= 900


def test_a_write_to_github_costs_five_points_and_one_thing_created() -> None:
    d = desk("github")
    d.send_cost("w", call_cost("github", "POST"))
    assert {name: scope.out for name, scope in d.target.scopes.items()} == {"core": 1, "points": 5, "content": 1, "at_once": 1}
    d.send_cost("r", call_cost("github"))
    assert {name: scope.out for name, scope in d.target.scopes.items()} == {"core": 2, "points": 6, "content": 1, "at_once": 2}


def test_another_resource_of_github_is_charged_by_its_own_name_only() -> None:
    d = desk("github")
    d.send(LimitsObserved(0.0, "t", (Sample("search", 30.0, 0.0, 42.0),)))
    assert d.granted(d.want("core", requests=1.0)) == ["core"]
    assert d.granted(d.want("search", search=1.0)) == []
    assert shape(d, "search") == ("fixed", 30.0, 60.0, ())


def test_openai_learns_its_buckets_and_charges_what_was_reserved() -> None:
    d = desk("openai")
    assert d.granted(d.send_cost("a", turn_cost(1_000, 500))) == ["a"]
    assert not d.target.scopes
    d.report("a", "ok", Sample("requests", 500.0, 499.0, 0.12), Sample("tokens", 30_000.0, 28_500.0, 3.0))
    assert shape(d, "requests") == ("bucket", 500.0, 60.0, ("requests",))
    assert shape(d, "tokens") == ("bucket", 30_000.0, 60.0, ("tokens",))
    d.send_cost("b", turn_cost(1_000, 500))
    assert d.scope("tokens").out == 1_500
    d.report("b", actual={"tokens": 1_100.0})
    assert d.scope("tokens").remaining == 27_000


def test_anthropic_counts_what_goes_in_and_what_comes_out_each_for_itself() -> None:
    d = desk("anthropic")
    told = (Sample("input_tokens", 30_000.0, 30_000.0), Sample("output_tokens", 8_000.0, 8_000.0))
    d.send(LimitsObserved(0.0, "t", told))
    d.send_cost("a", turn_cost(1_000, 500))
    assert (d.scope("input_tokens").out, d.scope("output_tokens").out) == (1_000, 500)
    d.report("a", actual={"input_tokens": 900.0, "output_tokens": 100.0})
    assert (d.scope("input_tokens").remaining, d.scope("output_tokens").remaining) == (29_100, 7_900)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([Sample("requests", 5_000, 4_999, 0.012)], ("bucket", 60.0)),  # openai, measured
        ([Sample("requests", 1_000, 998, 172.8)], ("bucket", 86_400.0)),  # groq: per day
        ([Sample("tokens", 8_000, 7_927, 0.547)], ("bucket", 60.0)),
        ([Sample("core", 5_000, 4_990, 1_800.0)], ("fixed", 3_600.0)),  # github
        ([Sample("search", 30, 8, 42.0)], ("bucket", 60.0)),  # could be either
        ([Sample("search", 30, 8, 42.0), Sample("search", 30, 7, 40.0)], ("fixed", 60.0)),  # ... until it shows
        ([Sample("requests_day", 2_400, 2_200, 33_011.4, 86_400.0)], ("fixed", 86_400.0)),  # cerebras
        ([Sample("requests", 60, 60, None), Sample("requests", 60, 30, 30.0)], ("bucket", 60.0)),  # a full one tells nothing
        ([Sample("requests", 50, 40, 30.0), Sample("requests", 50, 39, 12_800.0)], ("fixed", 18_000.0)),  # a longer window than it seemed
        ([Sample("UserByModelByDay", 50, 0, 5_631.0)], ("fixed", 86_400.0)),
    ],
)
def test_what_nobody_configured_is_learned_for_what_it_is(samples: list[Sample], expected: tuple[str, float]) -> None:
    d = desk("auto")
    for sample in samples:
        d.send(LimitsObserved(0.0, "t", (sample,)))
    spec = d.scope(samples[0].scope).spec
    assert (spec.kind, spec.window_seconds) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_answer_that_is_known_can_be_learned_from(case: Case) -> None:
    d = desk("auto")
    samples = observe(case.status, case.headers, case.body, NOW).samples
    d.send(LimitsObserved(0.0, "t", samples))
    learned = {sample.scope for sample in samples if sample.limit and "concurrent" not in sample.scope.lower()}
    assert set(d.target.scopes) == learned
    assert all(scope.origin is not Origin.CONFIGURED for scope in d.target.scopes.values())
    for sample in samples:
        if sample.scope in learned and sample.remaining is not None and sample.limit is not None:
            assert ledger.left(d.scope(sample.scope)) == pytest.approx(min(sample.remaining, sample.limit))
    went = d.granted(d.send_cost("call", turn_cost(1, 1), 0) + d.until(WINDOWS[-1] + 1.0))
    assert went == ["call"]  # nothing that was told stops anybody for ever


def test_who_waits_waits_for_a_limit_that_appears_and_others_learn_it() -> None:
    d = desk("auto")
    d.want("first", requests=1.0)
    d.limited("first", 30.0)
    d.want("waits", 0, requests=1.0)
    d.send(LimitsObserved(0.0, "t", (Sample("requests", 20.0, 0.0, 50.0),)))
    assert d.target.waiters["waits"].scopes == ("requests",)
    assert d.granted(d.until(49.0)) == []
    assert d.granted(d.until(50.0)) == ["waits"]


def test_a_target_learns_so_many_scopes_and_no_more() -> None:
    d = Desk(learned_max=3)
    d.send(TargetConfigured(0.0, target_spec("t")))
    d.send(LimitsObserved(0.0, "t", tuple(Sample(f"s{at}", 10.0, 5.0) for at in range(9))))
    assert sorted(d.target.scopes) == ["s0", "s1", "s2"]
    assert Settings().learned_max == 32


def test_where_all_learned_limits_are_taken_one_that_is_told_no_more_makes_way() -> None:
    d = Desk(learned_max=3)
    d.send(TargetConfigured(0.0, target_spec("t", "auto")))
    for name in ("one", "two", "three"):
        d.send(LimitsObserved(d.now, "t", (Sample(name, 10.0, 5.0, 60.0),)))
    d.until(86_399.0)
    d.send(LimitsObserved(d.now, "t", (Sample("one", 10.0, 5.0, 60.0), Sample("four", 10.0, 5.0, 60.0))))
    assert set(d.target.scopes) == {"one", "two", "three"}, "they were told within a day"
    d.want("w", 0, requests=1)
    d.until(86_401.0)
    d.send(LimitsObserved(d.now, "t", (Sample("four", 10.0, 5.0, 60.0),)))
    assert set(d.target.scopes) == {"one", "three", "four"}
    d.report("w")
    d.send(LimitsObserved(d.now, "t", (Sample("two", 10.0, 5.0, 60.0),)))
    assert set(d.target.scopes) == {"one", "two", "four"}
    assert d.scope("two").out == 0


def test_what_was_learned_stays_when_the_limits_are_configured_anew_and_goes_when_nothing_may_be_learned() -> None:
    d = desk("openai")
    d.send(LimitsObserved(0.0, "t", (Sample("requests", 500.0, 10.0, 58.8), Sample("tokens", 900.0, 40.0, 57.3))))
    d.send(TargetConfigured(0.0, target_spec("t", "openai", limits={"tokens": 1_000.0})))
    assert (d.scope("requests").remaining, d.scope("tokens").limit, d.scope("tokens").origin) == (10.0, 1_000.0, Origin.CONFIGURED)
    d.send(TargetConfigured(0.0, TargetSpec("t", (ScopeSpec("requests", "bucket", 500.0),))))
    assert sorted(d.target.scopes) == ["requests"]


def test_figures_of_the_account_go_into_the_profile() -> None:
    spec = target_spec(
        "t", "copilot", limits={"requests": 120.0}, declared_demand=0.01, lights=(0.5, 0.2), reservations={"picard": 0.25}
    )  # fmt: skip
    (scope,) = spec.scopes
    assert (scope.limit, scope.declared_demand, scope.green, scope.red) == (120.0, 0.01, 0.5, 0.2)
    assert spec.reservations == (("picard", 0.25),)
    assert spec.learns is not None
    assert spec.learns.pattern.green == 0.5


def test_a_mistake_in_a_target_is_named_with_what_is_known() -> None:
    with pytest.raises(ValueError, match="no profile is called 'gitlab'; known: github, copilot"):
        target_spec("t", "gitlab")
    with pytest.raises(ValueError, match="limits names the scope 'core'; known here: requests, tokens"):
        target_spec("t", "openai", limits={"core": 1.0})
    with pytest.raises(ValueError, match="limits names the scope 'x'; known here: none, give it under scopes"):
        target_spec("t", "auto", limits={"x": 1.0})
    with pytest.raises(ValueError, match="all together at most 1"):
        target_spec("t", reservations={"a": 0.6, "b": 0.5})
    with pytest.raises(ValueError, match="core is configured twice"):
        TargetSpec("t", (ScopeSpec("core", "fixed", 1), ScopeSpec("core", "fixed", 2)))


def test_a_cost_above_a_whole_limit_is_seen_under_each_name() -> None:
    d = desk("openai", limits={"tokens": 1_000.0})
    assert d.refused(d.send_cost("a", turn_cost(900, 200))) is RefuseCode.TOO_LARGE


def test_limits_in_place_of_the_profiles_count_what_they_are_called_after() -> None:
    scopes = (ScopeSpec("core", "fixed", 15_000.0, 3_600.0), ScopeSpec("output_tokens", "bucket", 100.0), ScopeSpec("own", "fixed", 9.0))
    spec = target_spec("t", "github", scopes=scopes, penalty_seconds=5.0, declared_demand=0.5, reservations={"a": 0.0, "b": 0.1})
    assert [(scope.name, scope.counts, scope.declared_demand) for scope in spec.scopes] == [
        ("core", ("requests",), 0.5),
        ("output_tokens", ("output_tokens", "tokens"), 0.0),
        ("own", ("requests",), 0.5),
    ]
    assert (spec.penalty_seconds, spec.reservations) == (5.0, (("b", 0.1),))


def test_what_p0_is_known_to_want_is_kept_of_a_limit_that_was_learned() -> None:
    d = desk("auto", declared_demand=0.5)
    d.send(LimitsObserved(0.0, "t", (Sample("requests", 100.0, 100.0, None, 60.0), Sample("tokens", 100.0, 100.0))))
    assert (d.scope("requests").spec.declared_demand, d.scope("tokens").spec.declared_demand) == (0.5, 0.0)
