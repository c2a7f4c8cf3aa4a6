"""Which nouns does the rate governor's state consist of?

Times are seconds on the host's monotonic clock. Nothing is shared between targets.
"""

from enum import Enum
from math import inf
from typing import Literal

from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core.sorted_set import SortedSet
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec

Cost = tuple[tuple[str, float], ...]  # units per scope, by name
Demand = tuple[float, float, float]
CLASSES = 3  # P0 critical, P1 standard, P2 background


class Settings(Struct, frozen=True, gc=False):
    """Every tunable of the governor. Triples are per class, P0 first. `policy`: whose rules hold (`rules`)."""

    policy: Literal["governor", "article"] = "governor"
    guard_seconds: float = 0.25  # added to every end of a block
    penalty_seconds_max: float = 3_600.0
    penalty_forget_seconds: float = 600.0  # after so long without a refusal strikes are forgotten
    hintless_seconds_max: float = 60.0  # a block that nobody gave a length to
    capacity_seconds: float = 1.0  # the same where the provider is full
    exclusive_seconds: tuple[float, float, float] = (0.0, 0.5, 3.5)  # a class waits so long after the end of a block
    retry_until_seconds: tuple[float, float, float] = (0.5, 3.5, 9.5)  # those who retry by themselves: so long after it at the latest
    probes_max: int = 1
    close_after: int = 2  # answers to probes
    window_max: float = 64.0  # slow start ends here: calls in flight
    promote_seconds: float = 300.0  # of unblocked waiting, then a P2 ranks as P1
    weights: tuple[float, float, float] = (8.0, 4.0, 1.0)  # of the paced rate
    yield_health: float = 0.30  # a P2 yields below it while better classes are forecast
    tight_seconds: float = 30.0  # nearer than this the end of the quota raises the level
    easy_seconds: float = 60.0  # farther than this lowers it
    dwell_seconds: float = 5.0
    burn_seconds: float = 15.0  # time constant
    levels: int = 3
    cascade_callers: int = 3
    cascade_seconds: float = 30.0
    cascade_quiet_seconds: float = 30.0
    cascade_seconds_max: float = 300.0
    rate_cut: float = 0.7
    rate_growth: float = 0.05  # per clean `rate_step_seconds`
    rate_step_seconds: float = 10.0
    rate_rise: float = 0.01  # calls per second, per clean step too, and per call that is served while they are few
    concurrency_step_seconds: float = 60.0
    forecast_part_max: float = 0.70  # never protect more of a scope for better classes
    forecast_seconds: float = 10.0  # of better classes' demand, kept in a bucket
    retry_budget: float = 500.0
    retry_cost: float = 5.0
    retry_forget_seconds: float = 600.0
    waiters_max: int = 10_000  # per target
    steps_max: int = 64  # grants and refusals per step
    expiries_max: int = 1_000  # per step
    learned_max: int = 32  # scopes of a target that appear from answers


class Light(Enum):
    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class Origin(Enum):
    CONFIGURED = "configured"
    GUESSED = "guessed"
    LEARNED = "learned"


class Mode(Enum):
    CLOSED = "closed"
    PRE_EMPTIVE_OPEN = "pre_emptive_open"
    OPEN = "open"
    HALF_OPEN = "half_open"
    DISABLED = "disabled"  # out of credit


STANDING = frozenset({Mode.OPEN, Mode.HALF_OPEN, Mode.DISABLED})  # waiting then does not count


class Share(Struct, frozen=True, gc=False):
    """
    What the owner of a reservation has used, and decaying sums of what it wanted, per class.

    `…elsewhere`: the same of the other nodes that share the ledger, as of `elsewhere_at`.
    """

    used: float = 0.0
    used_at: float = 0.0
    demand: Demand = (0.0, 0.0, 0.0)
    demand_at: float = 0.0
    used_elsewhere: float = 0.0
    demand_elsewhere: Demand = (0.0, 0.0, 0.0)
    elsewhere_at: float = 0.0


class Owned(Struct, frozen=True, gc=False):
    """What one node tells others of a `Share`: its own figures as of now."""

    caller: str
    used: float
    demand: Demand


class Scope(Struct, frozen=True, gc=False):
    """
    The ledger of one limit. `remaining` as of `at`; `out`: units of leases that are not settled.

    `origin`: configured, learned from answers, or learned and what kind of limit it is has shown.
    """

    spec: ScopeSpec
    limit: float
    remaining: float
    at: float
    reset_at: float = inf  # of a fixed window; inf: not known yet
    sample_at: float = -inf  # when the newest accepted sample came
    told_at: float = -inf  # when somebody told the limit last
    blocked_until: float = -inf
    out: float = 0.0
    burn: float = 0.0  # decaying sum of what was granted
    burn_at: float = 0.0
    demand: Demand = (0.0, 0.0, 0.0)  # decaying sums of what was wanted
    demand_at: float = 0.0
    elsewhere: Demand = (0.0, 0.0, 0.0)  # the same of other nodes that share the ledger
    elsewhere_at: float = 0.0
    shares: "Map[str, Share]" = Map()  # of callers with a reservation
    paced: tuple[float, float, float] = (0.0, 0.0, 0.0)  # when a class may next
    origin: Origin = Origin.CONFIGURED


class Breaker(Struct, frozen=True, gc=False):
    mode: Mode = Mode.CLOSED
    open_until: float = -inf
    told_until: float = -inf  # how long the provider said that it lasts, which is believed for a day only
    episode: int = 0
    episode_at: float = -inf  # leases granted before are no evidence of what is so now
    strikes: int = 0
    limited_at: float = -inf
    successes: int = 0
    window: float = inf  # calls in flight while it starts slowly
    level: int = 0
    level_at: float = -inf
    trend: int = 0  # 1: the quota will end before it renews, -1: it will not
    trend_at: float = 0.0
    rate: float = inf  # learned, calls per second
    tokens: float = 0.0  # of the bucket of that rate
    tokens_at: float = 0.0
    clean_at: float = 0.0
    sent: float = 0.0  # decaying count of grants
    sent_at: float = 0.0
    in_flight_max: float = inf  # learned
    in_flight_stated: float = inf  # by the provider: it never rises above
    risen_at: float = 0.0


class Cascade(Struct, frozen=True, gc=False):
    """`hits`: (when, caller) of fresh refusals, oldest first. One at a time until `until`."""

    hits: tuple[tuple[float, str], ...] = ()
    until: float = -inf


class Waiter(Struct, frozen=True, gc=False):
    want: str
    caller: str
    priority: int
    cost: Cost
    lease_seconds: float
    number: int  # of its arrival
    scopes: tuple[str, ...]
    since: float
    retry: bool
    asked: Cost  # as it was wanted; `cost` is of the scopes that are there
    owner: str  # the caller if it has a reservation, else empty
    unblocked_at: float  # what the target's clock of unblocked time showed


class Lease(Struct, frozen=True, gc=False):
    want: str
    fence: int
    caller: str
    priority: int
    cost: Cost
    granted: float
    expires: float
    seconds: float
    episode: int  # of the breaker when it was granted
    probe: bool = False
    promoted: bool = False
    owner: str = ""  # as of its waiter
    waiter: Waiter | None = None  # that it was; it goes back to where it stood if a shared store declines


class Line(Struct, frozen=True, gc=False):
    """The waiters of one class that want the same scopes. `heads`: (depth, in flight, number, caller), one per caller."""

    heads: SortedSet[tuple[int, int, int, str]] = SortedSet()
    keys: "Map[str, tuple[int, int, int, str]]" = Map()  # caller -> its entry in `heads`
    flows: "Map[str, SortedSet[tuple[int, str]]]" = Map()  # caller -> (number, want)


LineKey = tuple[int, tuple[str, ...], str]  # class, scopes, owner of a reservation: whoever has one is not behind those who have not


class Tables(Struct, gc=False):
    """What a target and the draft of a step both have. The dicts are never changed in place but in a draft."""

    spec: TargetSpec
    at: float
    scopes: dict[str, Scope]
    breaker: Breaker = Breaker()
    cascade: Cascade = Cascade()
    waiters: "Map[str, Waiter]" = Map()
    lines: dict[LineKey, Line] = {}
    eldest: SortedSet[tuple[int, str]] = SortedSet()  # P2 waiters by arrival
    leases: "Map[str, Lease]" = Map()  # by want
    expiries: SortedSet[tuple[float, str]] = SortedSet()
    in_flight: "Map[str, int]" = Map()  # leases by caller
    probes: int = 0  # in flight, of this episode
    promoted: int = 0  # in flight
    floor_at: float = 0.0  # when the next P2 may rank as P1
    unblocked: float = 0.0  # seconds that the target was not blocked
    budgets: "Map[str, float]" = Map()  # retries left, of callers that retried since `budgets_at`
    budgets_old: "Map[str, float]" = Map()  # the same, of the time before
    budgets_at: float = 0.0
    refused: "Map[str, float]" = Map()  # caller -> when it tries again, where callers wait by themselves
    learning_until: float = -inf  # P2 waits: what is out is not known yet
    number: int = 0
    declined: dict[str, tuple[float, float, float]] = {}  # by scope, or "": until when a shared store will not be asked, per class
    due: float = inf


# Its fields are those of the draft that a step works on, so they are listed once, in a base that is not frozen.
class Target(Tables, frozen=True, gc=False):  # pyright: ignore[reportGeneralTypeIssues]
    """All that is known of one allowance."""


class State(Struct, frozen=True, gc=False):
    """`due`: (when, target), one entry per target that waits for a time. `depths`: of callers in their workflows, upstream first."""

    settings: Settings = Settings()
    now: float = 0.0
    targets: "Map[str, Target]" = Map()
    due: SortedSet[tuple[float, str]] = SortedSet()
    fence: int = 0
    depths: "Map[str, int]" = Map()
    downstream: "Map[str, tuple[str, ...]]" = Map()
