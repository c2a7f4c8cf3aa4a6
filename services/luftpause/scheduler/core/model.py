"""Which nouns does the scheduler's state consist of?

Maps are `immutables.Map`: a change at 10,000 keys costs 0.3 us, against 2.2 us for `rpds.HashTrieMap` (same machine, Python 3.11). No
map is ever iterated to decide, because hash order differs between processes; what needs an order is in a `SortedSet` or a tuple.
"""

from enum import Enum
from typing import Any, Literal, NamedTuple

from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core.decisions import Decision, HoldReason
from luftpause.scheduler.core.events import Kind, Load, ReplicaSpec, Resync, TurnClass
from luftpause.scheduler.core.quota_model import RunQuota, TurnQuota
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.sorted_set import SortedSet
from luftpause.scheduler.core.timing import Due, Second

UNLIMITED = 1 << 30  # stands for "no cap" where rooms are compared
GENERATIVE = Kind.GENERATIVE.value


# ---- replicas ---------------------------------------------------------------------------------------------------


class Health(Enum):
    UNKNOWN = "unknown"  # not probed yet: takes no turns
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class Fault(Struct, frozen=True, gc=False):
    """A turn that its engine failed. `counts`: against the replica; else no other one could answer the like."""

    run: str
    body_hash: bytes
    counts: bool


class Replica(Struct, frozen=True, gc=False):
    """`models` None: not configured and never learned. `apis` empty: unknown, taken as all."""

    name: str
    spec: ReplicaSpec
    health: Health = Health.UNKNOWN
    models: tuple[str, ...] | None = None
    apis: tuple[str, ...] = ()
    misses: int = 0
    faults: tuple[Fault, ...] = ()  # the newest turns in a row that its engine failed
    rests_until: float = float("-inf")  # as too many did: until then good probes don't make it healthy
    probed_at: float = 0.0
    delivered_at: float = float("-inf")  # when a dataplane last had bytes from it
    load: Load | None = None
    load_at: float = 0.0
    has_load: bool = False  # its metrics were readable once: if they go missing that is a fault, not a property
    queued: int = 0  # the last so many of them showed a queue
    seen: int = 0  # generative turns that were in flight when it last reported
    arrivals: tuple[float, ...] = ()  # when the newest turns were placed there, as far as a report may not have seen them begin
    peak: int = 0  # most places taken or kept when a turn ended, since the last report
    cap: int | None = None  # set by a reported queue, or by an engine that said it is full
    refused: bool = False  # said that it is full since the last report
    busy: bool = False  # the same although nothing of ours was in flight there: it rests until its next good probe
    passes_cap: int | None = None  # most single passes, after it gave one back
    pass_refused: bool = False  # it did so since the last report
    kind: str = GENERATIVE  # the value of its spec's kind
    in_flight: int = 0  # generative turns
    passes: int = 0  # classifier and embedding turns in flight
    reserved: int = 0  # paused interactive branches that hold a place
    owed: int = 0  # what `batch_min_share` owes to batch here, in millionths of a turn
    since: float = float("-inf")  # when it was given its URL, if that changed: what was there before is elsewhere
    removed: bool = False  # no longer configured; kept while anything above is counted


# ---- runs -------------------------------------------------------------------------------------------------------


# Plain strings, as they are hashed and compared often: an Enum's hash and value are Python calls.
Phase = Literal["generating", "paused", "idle"]
PHASES: tuple[Phase, ...] = ("generating", "paused", "idle")


class Branch(Struct, frozen=True, gc=False):
    """An answer that ended in tool calls and has not been followed. `reserves`: until `until` it holds a place at its lane's home."""

    turn: str  # whose answer it was
    ids: tuple[str, ...]
    since: float
    head_digest: bytes = b""
    reserves: bool = False
    until: float = 0.0
    dataplane: str = ""  # whose memory has it


class Lane(Struct, frozen=True, gc=False):
    """A run's work with one model: it has the home and the phase."""

    model: str
    home: str = ""
    turn_seq: int = 0  # of its newest turn
    answered: int = 0  # of the newest that is known to have been answered
    in_flight: int = 0
    branches: tuple[Branch, ...] = ()
    ended: float = 0.0  # when its last turn ended
    returned: int = 0  # turns that its home gave back as full, and that wait for it


# Where a tool-call id is looked up: principal, caller, id, and the head digest for ids that say nothing by themselves (`call_0`).
IdKey = tuple[str, str, str, bytes]


class Run(Struct, frozen=True, gc=False):
    key: str  # `id`, and the principal where there is one
    id: str
    principal: str
    caller: str
    turn_class: TurnClass
    parent: str = ""
    turn_seq: int = 0
    seen: float = 0.0
    asked: float = 0.0  # when its newest turn came
    born: float = 0.0  # when its first one came; 0: before this scheduler
    lanes: tuple[Lane, ...] = ()
    held: "Map[str, bool]" = Map()  # its turns that wait; a set
    in_flight: int = 0
    ids: tuple[tuple[float, IdKey], ...] = ()  # (seen, key), oldest first
    responses: tuple[str, ...] = ()  # oldest first
    ended: bool = False  # forget it when its turns in flight have finished
    due: float = 0.0  # when its idle timer fires
    phase: Phase = "idle"


def run_key(principal: str, run: str) -> str:
    """Run ids are scoped by principal. A run id is visible ASCII, so the separator can't be part of it."""
    return f"{run}\x1f{principal}" if principal else run


class Sighting(Struct, frozen=True, gc=False):
    """A run that has carried an id. `orphan`: it came in a request before any answer was known to have it."""

    run: str
    head_digest: bytes
    seen: float
    orphan: bool = False


class Known(Struct, frozen=True, gc=False):
    """Who has carried an id. `crowded_at`: when there were last more runs than are kept."""

    sightings: tuple[Sighting, ...] = ()
    crowded_at: float = float("-inf")


class ResponseHome(Struct, frozen=True, gc=False):
    run: str
    replica: str
    seen: float


# ---- turns ------------------------------------------------------------------------------------------------------


class TurnPhase(Enum):
    IDENTIFYING = "identifying"  # waits for another dataplane's tool-call ids
    HELD = "held"
    IN_FLIGHT = "in_flight"


class QueueKey(NamedTuple):
    """Where held turns may go: all turns of one queue have the same possible replicas."""

    turn_class: int
    kind: str
    model: str
    api: str
    home: str  # only there while it can serve; empty: anywhere
    without: tuple[str, ...]  # gave it back
    unusable: tuple[str, ...]  # its dataplane lacks the key
    suspect: tuple[str, ...]  # its dataplane could not connect; until a probe answers


PlaceInFlow = tuple[Any, ...]
Flow = SortedSet[tuple[PlaceInFlow, str]]  # (place, turn); or, of a queue, (place, flow)


class Turn(Struct, frozen=True, gc=False):
    id: str
    attempt: int
    dataplane: str
    run: str  # key; empty for classifier and embedding turns
    run_id: str
    model: str
    kind: str  # the value of its Kind
    turn_class: TurnClass
    caller: str
    principal: str
    flow: str  # caller, scoped by principal: who shares fairly
    arrived: float
    phase: TurnPhase = TurnPhase.HELD
    api: str = "chat"
    parent: str = ""
    stated: bool = False  # its run was stated, not recognised by ids
    ids: tuple[str, ...] = ()  # carried by the request, newest first
    id_keys: tuple[IdKey, ...] = ()  # where those are looked up
    answer_ids: tuple[str, ...] = ()  # seen in the answer
    followed: bool = False  # a request with one of answer_ids came before they were known here
    head_digest: bytes = b""
    body_hash: bytes = b""
    body_bytes: int = 0  # of the request: the only measure of a prompt before its engine has counted it
    kept_home: str = ""  # strictly sticky whatever the lane's phase
    previous_response: str = ""  # that it continues, while nobody is known to have it
    strict: bool = False  # it was placed at a strict home
    resumes: bool = False  # it follows a pause of its lane, whose prefix is where it was placed
    returned: bool = False  # its home gave it back as full: its lane does not leave that home while it waits
    without: tuple[str, ...] = ()  # could not be reached, sorted
    reason: HoldReason | None = None
    waits_for: tuple[str, ...] = ()  # replicas; as last told
    no_replica_since: float = 0.0
    hold_until: float = 0.0  # it is refused if it is still held then (`hold_seconds_max`)
    queue: QueueKey | None = None  # where it is held
    place: PlaceInFlow = ()
    replica: str = ""
    turn_seq: int = 0
    placed: float = 0.0
    expires: float = 0.0
    held_seconds: float = 0.0
    quota: TurnQuota | None = None


class Caller(Struct, frozen=True, gc=False):
    in_flight: int = 0
    held: int = 0
    rank: Any = None  # the flow key while it has held turns


class Queue(Struct, frozen=True, gc=False):
    """Held turns with one QueueKey. `heads` has the first turn of each flow."""

    flows: "Map[str, Flow]"
    heads: Flow = SortedSet()
    size: int = 0


TwinKey = tuple[str, str]  # ("run", "r" and its key) or (flow, body hash in hex, which has no r)


class Twin(Struct, frozen=True, gc=False):
    """The arrival that a turn abandoned while held leaves to one retry, which finds it by any of `keys`."""

    turn: str
    arrived: float
    until: float
    keys: tuple[TwinKey, ...]


# ---- dataplanes, time -------------------------------------------------------------------------------------------


class Dataplane(Struct, frozen=True, gc=False):
    name: str
    session: str = ""
    boot: str = ""
    connected: bool = True
    turns_count: int = 0  # held and in flight; which ones is asked only when it comes or goes (`turns_of`)
    active_at: float = float("-inf")  # when a turn of it last ended
    suspects: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()  # it lacks the keys of these replicas
    listed: frozenset[str] = frozenset()  # turns named by its last complete list; asked for membership only
    listed_at: float = float("-inf")


class Resyncing(Struct, frozen=True, gc=False):
    """A Hello that is being absorbed."""

    hello: Resync
    runs_merged: int = 0


NO_QUEUES: "Map[QueueKey, Queue]" = Map()


class Tables(Struct, gc=False):
    """Everything that `decide` knows."""

    settings: Settings
    now: float
    started_at: float
    open: bool  # placing has begun
    replicas: "Map[str, Replica]"
    names: tuple[str, ...]  # of configured replicas, in that order
    urls: "Map[str, str]"  # the last known of every name
    servers: "Map[tuple[str, str], tuple[str, ...]]"  # (kind, model) -> replicas that name it
    patterns: "Map[str, tuple[str, ...]]" = Map()  # replica -> names of models with `*`
    runs: "Map[str, Run]" = Map()
    turns: "Map[str, Turn]" = Map()
    callers: "Map[str, Caller]" = Map()
    dataplanes: "Map[str, Dataplane]" = Map()
    dataplane_names: SortedSet[str] = SortedSet()
    ids: "Map[IdKey, Known]" = Map()
    responses: "Map[tuple[str, str], ResponseHome]" = Map()  # (principal, response id)
    response_order: SortedSet[tuple[float, str, str]] = SortedSet()  # the same with when it was seen, oldest first
    twins: "Map[TwinKey, tuple[Twin, ...]]" = Map()  # oldest first
    ended_runs: "Map[str, float]" = Map()  # run key -> when it was ended
    ended_order: SortedSet[tuple[float, str]] = SortedSet()  # the same, oldest first
    identifying: SortedSet[str] = SortedSet()
    queues: "Map[QueueKey, Queue]" = NO_QUEUES
    queue_keys: SortedSet[QueueKey] = SortedSet()
    queues_of_home: "Map[str, tuple[QueueKey, ...]]" = Map()
    queues_of_model: "Map[tuple[str, str], tuple[QueueKey, ...]]" = Map()
    ranks: "SortedSet[tuple[Any, str]]" = SortedSet()  # (flow key, flow) of flows with held turns
    timers: SortedSet[Due] = SortedSet()  # the few that must be exact
    wheel: "Map[int, Second]" = Map()  # the many others, by the second in which they are due
    seconds: SortedSet[int] = SortedSet()  # those of the wheel
    dirty: tuple[str, ...] = ()  # replicas that may take a held turn now
    stale: SortedSet[QueueKey] = SortedSet()  # queues whose turns may have to be told something else
    serial: int = 0
    counters: "Map[str, int]" = Map()
    phases: tuple[int, ...] = (0,) * 6  # runs by phase and class, see `phase_slot`
    hosted: tuple[str, ...] = ()  # replicas with a quota
    asking: "Map[str, tuple[int, ...]]" = Map()  # replica -> turns that ask for its quota, by priority
    lines: "Map[str, SortedSet[tuple[int, float, str]]]" = Map()  # replica that is full -> (priority, arrival, turn)
    run_quotas: "Map[str, RunQuota]" = Map()  # of runs with turns that needed some
    held: int = 0  # turns in queues
    passes_held: int = 0  # those of them that are not generative
    policy_state: Any = None
    due: float | None = None  # when the first timer fires
    expiry_at: float | None = None  # no turn in flight expires before: then all are looked at
    resyncing: Resyncing | None = None  # until it is absorbed nothing else happens

    # A step's own, empty between two steps (see `Draft`).
    policy: Any = None
    decisions: list[Decision] | None = None
    places_left: int = 0
    expiries_left: int = 0


# Its fields are those of the draft that a step works on, so they are listed once, in a base that is not frozen.
class State(Tables, frozen=True, gc=False):  # pyright: ignore[reportGeneralTypeIssues]
    """Everything that `decide` knows, between two steps. An old state stays valid after `decide`."""
