"""The scripts in Redis decide as the governor's core does: the same log of events through both, by a clock that the test sets."""

import random
from dataclasses import dataclass, field
from math import inf, nan

import msgspec
import pytest
import redis as redis_client
from msgspec.structs import replace

from luftpause.scheduler.governor.store import claims
from luftpause.scheduler.governor.store.journal import named
from luftpause.scheduler.governor.store.port import Answer, Asked, Enable, Release, Renew, Renewed, Report, Reserve, ScopeAsked, Waiting
from luftpause.scheduler.governor.store.redis_store import keys_of, script
from luftpause.scheduler.quota import core, ledger
from luftpause.scheduler.quota.decisions import Decision, Refuse
from luftpause.scheduler.quota.events import (
    AnswerReported,
    Event,
    LeaseReleased,
    LeaseRenewed,
    LimitsObserved,
    QuotaWanted,
    QuotaWithdrawn,
    TargetConfigured,
    TargetEnabled,
    Tick,
)  # fmt: skip
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Mode, Settings, State, Target
from luftpause.scheduler.quota.reports import told_by
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.shared import rank_of
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from luftpause.scheduler.quota.wishes import known as known_cost
from tests.support.redis_server import RedisServer

CLOCK = "local clock = redis.call('TIME')\nlocal now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000\n"
TARGET = "T"
EVENTS = 160

# What a node does by itself is off: pace, learned rates, cascades.
SETTINGS = Settings(rate_cut=1e9, cascade_callers=10**9, promote_seconds=inf, yield_health=0.0, window_max=8.0)
KINDS = (LimitKind.PRIMARY, LimitKind.SECONDARY, LimitKind.CAPACITY, LimitKind.TOO_LARGE, None)


def scope(name: str, kind: str, limit: float, window: float, burst: float = 1.0, charge: str = "actual") -> ScopeSpec:
    return ScopeSpec(name, kind, limit, window, charge, burst=burst, green=0.0, red=0.0, floor=0.0, protect=(0.02, 0.1, 0.25))  # type: ignore[arg-type]


SPECS = (
    TargetSpec(TARGET, (scope("core", "fixed", 20, 60),)),
    TargetSpec(TARGET, (scope("tokens", "bucket", 600, 60, 0.25, "reserved"), scope("requests", "fixed", 40, 60))),
    TargetSpec(TARGET, (scope("core", "fixed", 50, 100), scope("at_once", "concurrent", 3, 60)), penalty_seconds=20),
)


class Scripts:
    """The scripts, with the test's clock, and perhaps with a wrong line."""

    def __init__(self, server: RedisServer, prefix: str, mutant: tuple[str, str] = ("", "")) -> None:
        self._client = redis_client.Redis.from_url(server.url)
        self._prefix = prefix
        self._mutant = mutant

    def ask(self, now: float, question: Asked) -> Answer:
        source = script(type(question)).source
        assert source.count(CLOCK) == 1
        if self._mutant[0]:
            source = source.replace(*self._mutant)
        body = msgspec.msgpack.encode(replace(question, rules=claims.rules_of(SETTINGS)))
        keys = keys_of(self._prefix, TARGET, question.node)
        raw = self._client.eval(source.replace(CLOCK, "local now = tonumber(ARGV[2])\n"), len(keys), *keys, body, repr(now))
        return msgspec.msgpack.decode(raw, type=Answer)

    def close(self) -> None:
        self._client.close()


@dataclass
class Both:
    """The core, and the scripts beside it."""

    scripts: Scripts
    spec: TargetSpec
    state: State = field(init=False)
    first: TargetSpec = field(init=False)
    now: float = 1_000_000.0
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)  # by want: the core's, the store's
    wants: int = 0
    granted: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.first = self.spec
        self.state = core.initial(SETTINGS, self.now)
        self.govern(TargetConfigured(self.now, self.spec))

    @property
    def target(self) -> Target:
        return self.state.targets[TARGET]

    def govern(self, event: Event) -> tuple[Decision, ...]:
        step = core.govern(self.state, event)
        self.state = step.state
        return step.decisions

    def asked(self) -> tuple[ScopeAsked, ...]:
        return claims.scopes_of(self.target, SETTINGS, self.now)

    def configure(self, rng: random.Random) -> None:
        """Other figures of one limit; the store hears of them with the next question."""
        changed = rng.randrange(len(self.spec.scopes))
        first = self.first.scopes[changed]
        other = replace(first, limit=first.limit * rng.choice([0.5, 1, 2]), window_seconds=first.window_seconds * rng.choice([0.5, 1, 2]))
        scopes = [other if at == changed else one for at, one in enumerate(self.spec.scopes)]
        self.spec = replace(self.spec, scopes=tuple(scopes))
        self.govern(TargetConfigured(self.now, self.spec))
        self.alike(self.scripts.ask(self.now, Waiting(node="n", scopes=self.asked())))

    def want(self, priority: int, cost: tuple[tuple[str, float], ...], lease_seconds: float) -> None:
        self.wants += 1
        want = f"w{self.wants}"
        decisions = self.govern(QuotaWanted(self.now, TARGET, want, f"c{priority}", priority, cost, lease_seconds))
        if any(isinstance(one, Refuse) for one in decisions):
            return
        lease = self.target.leases.get(want)
        rank = rank_of(lease) if lease is not None else priority
        scopes = tuple(
            replace(
                one, cost=dict(cost).get(one.name, 0.0), headroom=ledger.headroom(self.target.scopes[one.name], rank, self.now, SETTINGS)
            )
            for one in self.asked()
        )
        answer = self.scripts.ask(
            self.now, Reserve(node="n", want=want, caller=f"c{priority}", rank=rank, lease_seconds=lease_seconds, scopes=scopes)
        )
        assert answer.ok == (lease is not None), (want, priority, cost, answer, decisions, self.target.breaker, self.target.scopes)
        if lease is None:
            self.refused += 1
            self.govern(QuotaWithdrawn(self.now, TARGET, want))
        else:
            self.granted += 1
            self.fences[want] = (lease.fence, answer.fence)

    def report(self, want: str, event: AnswerReported, *, stale: bool = False) -> None:
        _, fence = self.fences[want]
        lease = self.target.leases.get(want)
        known = lease is not None and not stale
        actual = known_cost(self.target, event.actual)  # as of a lease that another node has: the script applies the bounds
        question = Report(
            node="n",
            want=want,
            fence=fence + stale,
            outcome=event.outcome,
            kind=event.kind.value if event.kind else "",
            wait_seconds=-1.0 if event.wait_seconds is None else event.wait_seconds,
            penalty=claims.penalty_of(self.spec, SETTINGS, event.kind),
            actual=named(actual),
            whole=claims.whole_of(self.target, event),
            samples=claims.samples_of(told_by(self.target, lease if known else None, event)),
            scopes=self.asked(),
        )
        self.govern(event)
        answer = self.scripts.ask(self.now, question)
        assert answer.ok == known
        self.alike(answer)

    def enable(self) -> None:
        self.govern(TargetEnabled(self.now, TARGET))
        self.alike(self.scripts.ask(self.now, Enable(node="n", scopes=self.asked())))

    def alike(self, answer: Answer) -> None:
        """The same ledger, the same block."""
        for told in answer.scopes:
            scope = ledger.roll(self.target.scopes[told.name], self.now)
            assert told.limit == scope.limit
            assert told.out == pytest.approx(scope.out, abs=1e-5)
            if scope.spec.kind != "concurrent":
                assert told.remaining == pytest.approx(scope.remaining, abs=1e-4), told.name
            if scope.spec.kind == "fixed":
                assert told.reset_seconds == pytest.approx(scope.reset_at - self.now if scope.reset_at < inf else -1.0, abs=1e-4)
        breaker = self.target.breaker
        standing = breaker.mode in {Mode.OPEN, Mode.DISABLED}
        assert answer.blocked_seconds == pytest.approx(max(0.0, breaker.open_until - self.now) if standing else 0.0, abs=1e-4)
        assert answer.disabled == (breaker.mode is Mode.DISABLED)


def some_samples(both: Both, rng: random.Random) -> tuple[Sample, ...]:
    names = [one.name for one in both.spec.scopes if one.kind != "concurrent"]
    if rng.random() < 0.5:
        return ()
    name = rng.choice(names)
    limit = next(one.limit for one in both.spec.scopes if one.name == name)
    told = 1.0 if rng.random() < 0.05 else limit
    remaining = None if rng.random() < 0.1 else rng.choice([0.0, float(rng.randint(-3, int(limit)))])
    reset = 1e9 if rng.random() < 0.03 else rng.choice([None, 0.0, rng.uniform(1, 70)])
    return (Sample(name, rng.choice([None, told]), remaining, reset),)


def some_cost(both: Both, rng: random.Random) -> tuple[tuple[str, float], ...]:
    return tuple(
        (one.name, 1.0 if one.kind == "concurrent" or one.name == "requests" else float(rng.choice([1, 1, 2, 5, one.limit * 0.3])))
        for one in both.spec.scopes
        if rng.random() < 0.9
    )


def some_use(rng: random.Random) -> tuple[tuple[str, float], ...]:
    """What callers say that they used: anything."""
    figures = [0.0, 1.0, 1.0, 3.0, 30.0, 1e6, 1e308, -5.0, -1e308, inf, -inf, nan]
    return tuple((name, rng.choice(figures)) for name in ("core", "tokens", "requests", "unknown") if rng.random() < 0.3)


def act(both: Both, rng: random.Random) -> None:
    held = sorted(both.fences)
    both.now += rng.choice([0.01, 0.1, 0.5, 3.0, rng.uniform(0, 30)])
    both.govern(Tick(both.now))
    kind = rng.choices(["want", "report", "release", "renew", "observe", "look", "enable"], [20, 16, 2, 4, 2, 2, 2])[0]
    if kind == "want" or not held:
        both.want(rng.choice([0, 0, 1, 1, 2]), some_cost(both, rng), rng.choice([2.0, 20.0, 60.0]))
        return
    want = rng.choice(held)
    fence, store_fence = both.fences[want]
    if kind == "report":
        outcome = rng.choices(["ok", "limited", "error"], [8, 4, 1])[0]
        limit_kind = rng.choice(KINDS) if outcome == "limited" else None
        wait = rng.choice([None, 0.5, 12.0, 40.0, *((1e9,) if rng.random() < 0.1 else ())]) if outcome == "limited" else None
        event = AnswerReported(both.now, TARGET, want, fence, outcome, some_use(rng), some_samples(both, rng), wait, limit_kind)  # type: ignore[arg-type]
        if rng.random() < 0.1:
            both.report(want, replace(event, fence=fence + 10**6), stale=True)
        else:
            both.report(want, event)
            del both.fences[want]
    elif kind == "release":
        known = want in both.target.leases
        both.govern(LeaseReleased(both.now, TARGET, want, fence))
        assert both.scripts.ask(both.now, Release(node="n", want=want, fence=store_fence, scopes=both.asked())).ok == known
        del both.fences[want]
    elif kind == "renew":
        lease = both.target.leases.get(want)
        both.govern(LeaseRenewed(both.now, TARGET, want, fence))
        seconds = lease.seconds if lease is not None else 1.0
        assert both.scripts.ask(both.now, Renew(node="n", leases=(Renewed(want, store_fence, seconds),))).ok == (lease is not None)
    elif kind == "observe":
        observe(both, rng)
    elif kind == "enable":
        both.enable()
    both.alike(both.scripts.ask(both.now, Waiting(node="n", scopes=both.asked())))


def observe(both: Both, rng: random.Random) -> None:
    observed = LimitsObserved(both.now, TARGET, some_samples(both, rng))
    if rng.random() < 0.3:
        observed = replace(observed, limited=True, wait_seconds=rng.choice([None, 3.0]), kind=rng.choice(KINDS))
    report = Report(
        node="n",
        outcome="limited" if observed.limited else "ok",
        samples=claims.samples_of(observed.samples),
        scopes=both.asked(),
    )
    both.govern(observed)
    both.scripts.ask(both.now, claims.refused(report, observed, both.spec, SETTINGS))


@pytest.fixture
def prefix() -> str:
    return f"d{random.getrandbits(64):x}"


def play(scripts: Scripts, spec: TargetSpec, seed: int, *, configures: bool = False) -> Both:
    rng = random.Random(seed)
    both = Both(scripts, spec)
    try:
        for number in range(EVENTS):
            act(both, rng)
            if configures and number % 20 == 10:
                both.configure(rng)
    finally:
        scripts.close()
    return both


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "+".join(one.kind for one in spec.scopes))
@pytest.mark.parametrize("seed", range(4))
def test_a_random_log_is_granted_and_refused_alike(redis: RedisServer, prefix: str, spec: TargetSpec, seed: int) -> None:
    both = play(Scripts(redis, prefix), spec, seed)
    assert both.granted > 10
    assert both.refused > 10


@pytest.mark.parametrize("step", [3_600.0, 10.0, 0.3])
def test_a_clock_of_the_server_that_is_set_back_holds_up_nothing(redis: RedisServer, prefix: str, step: float) -> None:
    scripts = Scripts(redis, prefix)
    scopes = (ScopeAsked("core", "fixed", 5.0, 60.0, cost=5.0), ScopeAsked("tokens", "bucket", 600.0, 60.0, cost=600.0))
    try:
        at = 1_000_000.0
        lease = scripts.ask(at, Reserve(node="n", want="a", caller="c", rank=0, lease_seconds=20.0, scopes=scopes))
        assert lease.ok
        refused = Report(node="n", outcome="limited", kind="secondary", wait_seconds=30.0, scopes=scopes)
        scripts.ask(at + 1, refused)
        before = scripts.ask(at + 2, Waiting(node="n", scopes=scopes))
        at -= step
        after = scripts.ask(at + 2, Waiting(node="n", scopes=scopes))
        assert after.blocked_seconds == pytest.approx(before.blocked_seconds, abs=1.01)
        assert [one.reset_seconds for one in after.scopes] == pytest.approx([one.reset_seconds for one in before.scopes], abs=1.01)
        later = scripts.ask(at + 2 + 33, Waiting(node="n", scopes=scopes))
        assert (later.blocked_seconds, later.scopes[1].out) == (0, 0), "block and lease are over"
        last = scripts.ask(at + 2 + 63, Waiting(node="n", scopes=scopes))
        assert last.scopes[0].remaining == 5, "a window has begun"
        assert last.scopes[1].remaining == pytest.approx(600 * 30 / 60, abs=1e-3), "the bucket refills"
    finally:
        scripts.close()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "+".join(one.kind for one in spec.scopes))
def test_limits_that_are_configured_anew_change_both_alike(redis: RedisServer, prefix: str, spec: TargetSpec) -> None:
    assert play(Scripts(redis, prefix), spec, 7, configures=True).granted > 10


@pytest.mark.parametrize(
    "line",
    [
        "scope.remaining = math.max(-scope.limit, scope.remaining + scope.limit - was)",
        "if scope.reset_at < INF and scope.window ~= told.window then scope.reset_at = math.min(scope.reset_at, now + told.window) end",
    ],
)
def test_a_store_that_forgets_what_was_used_when_limits_change_is_noticed(redis: RedisServer, prefix: str, line: str) -> None:
    assert line in script(Waiting).source
    with pytest.raises(AssertionError):
        play(Scripts(redis, prefix, (line, "")), SPECS[0], 7, configures=True)


MUTANTS = {
    "expired leases are donated": ("if scope and scope.sample_at <= lease.granted then charge", "if false then charge"),
    "any sample raises": ("or anew or granted > scope.sample_at then", "or true then"),
    "no headroom": ("local leave = math.min(told.headroom,", "local leave = math.min(0,"),
    "no class windows": ("rules.exclusive[rank + 1]", "0"),
    "any number of probes": ("breaker.probes >= rules.probes_max", "false"),
    "old leases count as probes": ("if lease.granted < breaker.episode_at then return end", ""),
    "no slow start": ("redis.call('HLEN', LEASES) >= breaker.window", "false"),
    "strikes don't grow": ("strikes = strikes + 1 end", "strikes = 1 end"),
    "late refusals count": ("local telling = fresh and #empty == 0", "local telling = #empty == 0"),
    "the block may get shorter": (
        "math.max(now + math.max(0, seconds - ask.age_seconds) + rules.guard, breaker.open_until)",
        "now + seconds + rules.guard",
    ),
    "a window begins never": ("if scope.kind == 'fixed' and scope.reset_at >= INF then", "if false then"),
    "a bucket refills beyond its burst": ("scope.kind == 'bucket' and scope.limit * scope.burst or scope.limit", "scope.limit"),
    "what is out is there": ("scope.remaining) - scope.out", "scope.remaining)"),
    "whatever is said to be used is charged": ("math.min(math.max(units, least), most)", "units"),
    "what was reserved is not debited": ("whole[cost.name] and cost.units or 0", "0"),
    "any fence will do": ("known = lease ~= nil and lease.fence == ask.fence", "known = lease ~= nil"),
    "renewals are forgotten": ("lease.expires = now + one.lease_seconds", ""),
}


NOTICED_FIRST = {  # target and seed of a log that notices it; where none is named, the first one does
    "no class windows": (2, 1),
    "no headroom": (1, 0),
    "old leases count as probes": (1, 5),
    "the block may get shorter": (2, 0),
    "renewals are forgotten": (1, 3),
    "a bucket refills beyond its burst": (1, 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_noticed(redis: RedisServer, prefix: str, name: str) -> None:
    old, new = MUTANTS[name]
    assert any(old in script(question).source for question in (Reserve, Report, Renew)), "the mutant fits no line any more"
    logs = [NOTICED_FIRST.get(name, (0, 0)), *((at, seed) for seed in range(8) for at in range(len(SPECS)))]
    for number, (at, seed) in enumerate(logs):
        try:
            play(Scripts(redis, f"{prefix}{number}", (old, new)), SPECS[at], seed)
        except AssertionError:
            return
    pytest.fail("nothing noticed it")
