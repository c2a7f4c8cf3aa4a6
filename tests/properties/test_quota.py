"""Does the rate governor keep its promises, whatever happens in whatever order?

I1 to I13 are the promises by their numbers in the governor's specification. Every grant is the one that the naive oracle names.
"""

from collections import Counter
from math import inf

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.core import govern, initial
from luftpause.scheduler.quota.decisions import Blocked, Decision, Expired, Grant, Stale
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
from luftpause.scheduler.quota.model import Light, Mode, Scope, Settings, State, Target
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.snapshot import Moment, from_snapshot, to_snapshot
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.properties.quota_oracle import Oracle

SPEC = TargetSpec(
    "t",
    (
        ScopeSpec("req", "fixed", 20, 60),
        ScopeSpec("tok", "bucket", 3_000, 60, charge="reserved", burst=0.5),
        ScopeSpec("conc", "concurrent", 4, 1),
    ),
    reservations=(("c0", 0.3), ("c1", 0.2)),
)
TARGETS = (SPEC, replace(SPEC, reservations=()), replace(SPEC, reservations=(("c2", 0.9),)))
WANTS_ALL = (("conc", 1.0), ("req", 1.0), ("tok", 10.0))
SETTINGS = Settings(promote_seconds=20.0, penalty_seconds_max=60.0, steps_max=1)
WORKFLOWS = {"work": ["c3", "c1", "c0"]}
NEAR = 1e-6
LEASE_SECONDS = 15.0
SAMPLES = (
    (),
    (Sample("req", 20, 3, 30.0),),
    (Sample("req", 20, 20, 60.0), Sample("tok", 3_000, 1_500)),
    (Sample("req", 20, 0, 9.0),),
    (Sample("tok", 2_000, -50, 3.0),),
    (Sample("req", 20, 0),),
    (Sample("tok", 5, 0.0, 6.0),),
    (Sample("req", 1, 0, 1e9),),
)


class Quotas(RuleBasedStateMachine):
    """One target with a limit of each kind. Each event is absorbed first; then the oracle names whoever may go, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.state = initial(SETTINGS, 0.0, WORKFLOWS)
        self.begin = self.state
        self.log: list[tuple[Event, int]] = []
        self.serial = 0
        self.held: list[Grant] = []
        self.old: list[Grant] = []
        self.fences: list[int] = []
        self.block_end = -inf
        self.send(TargetConfigured(0.0, SPEC))

    @property
    def target(self) -> Target:
        return self.state.targets["t"]

    def send(self, event: Event) -> list[Decision]:
        """Absorb, then settle by ticks of the same moment."""
        told = self.step(LimitsObserved(event.now, "t", ()) if isinstance(event, Tick) else event, 0)  # a tick without a step does nothing
        for _ in range(200):
            expected = Oracle(self.state, self.target).next() if self.target.breaker.mode is not Mode.DISABLED else None
            before = self.state
            decisions = self.step(Tick(self.state.now), 1)
            grants = [decision for decision in decisions if isinstance(decision, Grant)]
            assert [grant.want for grant in grants] == ([expected.want] if expected else [])
            for grant in grants:
                self.check_grant(before, grant)
            told += decisions
            if not decisions and (not self.state.due or self.state.due.first()[0] > self.state.now):
                break
        else:
            pytest.fail("it does not come to rest")
        return told

    def step(self, event: Event, steps: int) -> list[Decision]:
        self.log.append((event, steps))
        step = govern(replace(self.state, settings=replace(SETTINGS, steps_max=steps)), event)
        self.state = step.state
        for decision in step.decisions:
            self.note(decision)
        return list(step.decisions)

    def note(self, decision: Decision) -> None:
        if isinstance(decision, Grant) and decision.fence not in self.fences:
            assert decision.fence > max(self.fences, default=0), "fences grow"
            self.fences.append(decision.fence)
            self.held.append(decision)
        elif isinstance(decision, Blocked):
            assert decision.until >= self.block_end, "I13: a block is never made shorter"
            self.block_end = decision.until
        elif isinstance(decision, Expired):
            self.drop(decision.want)

    def drop(self, want: str) -> None:
        self.old += [grant for grant in self.held if grant.want == want]
        self.held = [grant for grant in self.held if grant.want != want]

    def check_grant(self, before: State, grant: Grant) -> None:
        was, now = before.targets["t"], self.state.now
        lease = self.target.leases[grant.want]
        rank = 1 if lease.promoted else lease.priority
        oracle = Oracle(before, was)
        assert now >= self.block_end, "I3: no grant before the end of the block"
        if was.breaker.mode is Mode.HALF_OPEN or was.breaker.window < inf:
            assert now >= was.breaker.open_until + (0.0, 0.5, 3.5)[lease.priority], "I8: the windows of the classes"
        for name, units in lease.cost:
            full = units > ledger.capacity(was.scopes[name])  # such a cost goes out of a full bucket only
            assert ledger.left(self.target.scopes[name]) >= -NEAR or full, "I1: nothing is overdrawn"
            if rank == 2 and name != "conc":
                assert ledger.light(was.scopes[name], now) is not Light.RED, "I2: P2 parks in the red"
            if rank and name != "conc" and not full:
                self.check_headroom(oracle, was.scopes[name], name, units, rank, lease.caller)
        if was.cascade.until > now:
            assert not was.leases, "R10: one at a time"
        better = [waiter for waiter in was.waiters.values() if waiter.priority < rank]
        assert all(oracle.in_the_way(waiter, waiter.priority) is not None or set(waiter.scopes) != set(lease_scopes(lease.cost))
                   for waiter in heads(better)), "I7: no better one that may go waits"  # fmt: skip

    def check_headroom(self, oracle: Oracle, scope: Scope, name: str, units: float, rank: int, caller: str) -> None:
        """I2: it leaves what better classes, and owners of shares, are forecast to need."""
        cap, rest = oracle.capacity(scope), scope.remaining - oracle.out(name) - units
        leave = oracle.headroom(scope, cap, rank)
        assert rest >= min(leave, cap - units) - NEAR, "I2: headroom for better classes"
        if not oracle.entitled(scope, caller, units):
            assert rest >= min(leave + oracle.kept(scope, caller, rank), cap - units) - NEAR, "I2: headroom for the owners of shares"

    # ---- what may happen ----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 1.0, 4.0, 15.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        """As a host does it: awake at each moment it was told to."""
        end = self.state.now + seconds
        while self.state.due and self.state.due.first()[0] <= end:
            at = self.state.due.first()[0]
            assert at > self.state.now, "it wakes in the future only"
            self.send(Tick(at))
        self.send(Tick(end))

    @rule(
        caller=st.integers(0, 4),
        priority=st.integers(0, 2),
        tokens=st.integers(1, 3_000),
        scopes=st.sampled_from([("req", "tok", "conc"), ("req", "conc"), ("tok",), ("req",)]),
        retry=st.booleans(),
    )
    def somebody_wants(self, caller: int, priority: int, tokens: int, scopes: tuple[str, ...], retry: bool) -> None:
        self.serial += 1
        cost = tuple((name, float(tokens) if name == "tok" else 1.0) for name in scopes)
        self.send(QuotaWanted(self.state.now, "t", f"w{self.serial}", f"c{caller}", priority, cost, LEASE_SECONDS, retry))

    @precondition(lambda self: self.target.waiters)
    @rule(at=st.integers(0, 99))
    def somebody_leaves(self, at: int) -> None:
        wants = sorted(self.target.waiters)
        self.send(QuotaWithdrawn(self.state.now, "t", wants[at % len(wants)]))

    @precondition(lambda self: self.held)
    @rule(
        at=st.integers(0, 99),
        outcome=st.sampled_from(["ok", "ok", "ok", "limited", "error"]),
        samples=st.sampled_from(SAMPLES),
        wait=st.sampled_from([None, 0.0, 3.0, 9.0, 1e9]),
        kind=st.sampled_from([LimitKind.PRIMARY, LimitKind.PRIMARY, LimitKind.SECONDARY, LimitKind.CONCURRENCY, LimitKind.CAPACITY]),
        used=st.integers(0, 4_000),
    )
    def an_answer_comes(self, at: int, outcome: str, samples: tuple[Sample, ...], wait: float | None, kind: LimitKind, used: int) -> None:
        grant = self.held[at % len(self.held)]
        limited = outcome == "limited"
        actual = (("tok", float(used)),)
        wait, why = (wait, kind) if limited else (None, None)
        report = AnswerReported(self.state.now, "t", grant.want, grant.fence, outcome, actual, samples, wait, why)
        self.drop(grant.want)
        self.send(report)

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 99), released=st.booleans())
    def a_holder_renews_or_releases(self, at: int, released: bool) -> None:
        grant = self.held[at % len(self.held)]
        if released:
            self.drop(grant.want)
            self.send(LeaseReleased(self.state.now, "t", grant.want, grant.fence))
        else:
            self.send(LeaseRenewed(self.state.now, "t", grant.want, grant.fence))

    @precondition(lambda self: self.old)
    @rule(at=st.integers(0, 99))
    def an_old_report_comes(self, at: int) -> None:
        self.send(Tick(self.state.now))
        grant, was = self.old[at % len(self.old)], self.target
        told = self.step(AnswerReported(self.state.now, "t", grant.want, grant.fence, "limited", wait_seconds=99.0), 0)
        assert told == [Stale("t", grant.want, grant.fence)]
        assert (self.target.scopes, self.target.breaker, self.target.leases) == (was.scopes, was.breaker, was.leases), (
            "I6, I9: it changes nothing"
        )
        self.send(Tick(self.state.now))

    @rule(spec=st.sampled_from(TARGETS), learning_seconds=st.sampled_from([0.0, 0.0, 20.0]))
    def it_is_configured_anew(self, spec: TargetSpec, learning_seconds: float) -> None:
        self.send(TargetConfigured(self.state.now, spec, learning_seconds))

    @rule(caller=st.sampled_from(["c0", "c1", "c2"]), calls=st.integers(1, 6))
    def an_owner_works(self, caller: str, calls: int) -> None:
        """Short calls, one after the other: its share is used, and it is forecast to want more."""
        for _ in range(calls):
            self.serial += 1
            want = f"w{self.serial}"
            self.send(QuotaWanted(self.state.now, "t", want, caller, 1, (("req", 1.0), ("tok", 30.0)), LEASE_SECONDS))
            grant = next((grant for grant in self.held if grant.want == want), None)
            if grant is not None:
                self.drop(want)
                self.send(AnswerReported(self.state.now, "t", want, grant.fence, "ok"))

    @rule(away=st.sampled_from([0.0, 3.0, 40.0]))
    def the_process_starts_again(self, away: float) -> None:
        """The ledger comes back from its snapshot; who waited asks again, or does not."""
        written = to_snapshot(self.state, self.state.now, Moment(1_000.0))
        self.state = from_snapshot(written, initial(SETTINGS, self.state.now, WORKFLOWS), Moment(1_000.0 + away))
        self.begin, self.block_end = self.state, self.target.breaker.open_until
        self.log.clear()
        self.send(Tick(self.state.now))

    @rule(seconds=st.sampled_from([0.0, 1.0]))
    def callers_are_refused_one_after_the_other(self, seconds: float) -> None:
        """Each by a lease that was granted after the refusal before: what makes a cascade."""
        for caller in ("c3", "c1", "c0"):
            self.serial += 1
            want = f"w{self.serial}"
            self.send(QuotaWanted(self.state.now, "t", want, caller, 0, WANTS_ALL, LEASE_SECONDS))
            self.time_passes(max(0.0, self.target.breaker.open_until - self.state.now) + seconds)
            grant = next((grant for grant in self.held if grant.want == want), None)
            if grant is None:
                self.send(QuotaWithdrawn(self.state.now, "t", want))
                return
            self.drop(want)
            self.send(AnswerReported(self.state.now, "t", want, grant.fence, "limited", wait_seconds=0.0, kind=LimitKind.PRIMARY))

    @rule(samples=st.sampled_from(SAMPLES))
    def limits_are_seen(self, samples: tuple[Sample, ...]) -> None:
        self.send(LimitsObserved(self.state.now, "t", samples))

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 99))
    def the_credit_ends_and_is_paid(self, at: int) -> None:
        grant = self.held[at % len(self.held)]
        self.drop(grant.want)
        self.send(AnswerReported(self.state.now, "t", grant.want, grant.fence, "limited", kind=LimitKind.CREDIT))
        assert not self.target.waiters, "nobody waits for money"
        self.an_operator_enables_it()

    @rule()
    def an_operator_enables_it(self) -> None:
        self.block_end = -inf
        self.send(TargetEnabled(self.state.now, "t"))

    # ---- what holds always --------------------------------------------------------------------------------------

    @invariant()
    def indexes_are_what_a_recount_says(self) -> None:
        t = self.target
        leases, waiters = list(t.leases.values()), list(t.waiters.values())
        for name, scope in t.scopes.items():
            assert scope.out == pytest.approx(sum(dict(lease.cost).get(name, 0.0) for lease in leases))
        assert dict(t.in_flight) == Counter(lease.caller for lease in leases)
        assert sorted(t.expiries) == sorted((lease.expires, lease.want) for lease in leases)
        assert sorted(t.eldest) == sorted((waiter.number, waiter.want) for waiter in waiters if waiter.priority == 2)
        assert sorted(want for line in t.lines.values() for flow in line.flows.values() for _, want in flow) == sorted(t.waiters)
        assert t.promoted == sum(lease.promoted for lease in leases) <= 1
        b = t.breaker
        probes = sum(lease.probe and lease.episode == b.episode for lease in leases)
        assert t.probes == probes
        assert b.mode is not Mode.HALF_OPEN or probes <= SETTINGS.probes_max, "I4: few probes"
        assert all(lease.expires > self.state.now for lease in leases), "I5: no lease outlives its expiry"
        assert {grant.want for grant in self.held} == set(t.leases)

    def teardown(self) -> None:
        self.send(Tick(self.state.now + 10_000.0))
        assert not [lease for lease in self.target.leases.values() if lease.granted < self.state.now], "I5: all came back"
        state = self.begin
        for event, steps in self.log:  # I11
            state = govern(replace(state, settings=replace(SETTINGS, steps_max=steps)), event).state
        assert state == self.state
        self.everybody_is_served()

    def everybody_is_served(self) -> None:
        """Nobody waits for ever: as leases end and time passes, all get what they want."""
        state = replace(self.state, settings=SETTINGS)
        for turn in range(400):
            target = state.targets["t"]
            if not target.waiters:
                return
            ends = [LeaseReleased(state.now, "t", lease.want, lease.fence) for lease in target.leases.values()]
            for event in (*ends, Tick(state.now + (61.0 if turn < 200 else 3_600.0))):
                state = govern(state, event).state
        pytest.fail(f"{len(state.targets['t'].waiters)} wait for ever")


def heads(waiters: list) -> list:
    """The first of each caller, class and set of scopes."""
    found: dict = {}
    for waiter in sorted(waiters, key=lambda one: one.number):
        found.setdefault((waiter.priority, waiter.caller, waiter.scopes), waiter)
    return list(found.values())


def lease_scopes(cost: tuple[tuple[str, float], ...]) -> list[str]:
    return [name for name, _ in cost]


Quotas.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestQuotas = Quotas.TestCase
