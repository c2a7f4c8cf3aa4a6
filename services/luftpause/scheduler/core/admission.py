"""May this replica take a turn now, and how does what it reports change that?"""

from collections.abc import Sequence

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import Load, TurnClass
from luftpause.scheduler.core.model import GENERATIVE, UNLIMITED, Health, Replica
from luftpause.scheduler.core.settings import Settings

TURN = 1_000_000  # what is owed is counted in millionths, as sums of floats drift
BURST_TURNS_MIN = 8  # default of burst_turns_max where the engine runs fewer
ARRIVING_SECONDS = 0.1  # from a turn's place to its first step: the way to the engine, and the step that is under way there
ARRIVALS_MAX = BURST_TURNS_MIN  # no more are known: with more on their way, what waits is a queue


def takes(replica: Replica) -> HoldReason | None:
    """None: whatever it reports, its configuration and health let it take a generative turn."""
    if replica.health is not Health.HEALTHY or replica.removed:
        return HoldReason.NO_REPLICA
    most = replica.spec.max_in_flight
    return None if most is None or replica.in_flight + replica.passes < most else HoldReason.CAPPED


def admits(replica: Replica, kind: str, turn_class: int, settings: Settings, spare: int = 0) -> HoldReason | None:
    """None: it takes a turn of this kind and class. Else why not. `spare`: so many more than its reported queue allows."""
    if replica.health is not Health.HEALTHY or replica.removed:
        return HoldReason.NO_REPLICA
    if kind != GENERATIVE:  # one pass: takes no generative place and waits for none
        return HoldReason.CAPPED if _passes_full(replica) else None
    taken = replica.in_flight
    most = limit(replica, settings, spare)
    if taken >= most or (replica.busy and taken == 0):
        return HoldReason.CAPPED
    if taken > replica.seen and taken - replica.seen >= burst_limit(replica, settings):
        return HoldReason.CAPPED
    if turn_class == TurnClass.BATCH and taken + replica.reserved >= most:
        return HoldReason.RESERVED
    return None


def passes_unasked(replica: Replica) -> bool:
    """It takes any single pass now: where no other one can, a dataplane need not ask for its place."""
    uncapped = replica.passes_cap is None and replica.spec.max_in_flight is None
    return uncapped and replica.health is Health.HEALTHY and not replica.removed and not replica.spec.quota


def _passes_full(replica: Replica) -> bool:
    most = replica.spec.max_in_flight
    if replica.passes_cap is not None and replica.passes >= replica.passes_cap:
        return True
    return most is not None and replica.in_flight + replica.passes >= most


def limit(replica: Replica, settings: Settings, spare: int = 0) -> int:
    """
    Most generative turns in flight there; UNLIMITED where nothing caps it.

    What gauges say is never below 1: they may lie, and an idle engine must get a turn. `max_in_flight` is meant as it stands.
    """
    most = replica.cap
    if most is None:
        most = settings.load_unknown_cap if replica.has_load and replica.load is None else UNLIMITED
    most = (1 if most < 1 else most) + spare  # noqa: FURB136 (a call of max costs as much as the rest)
    own = replica.spec.max_in_flight
    return most if own is None else max(0, min(most, own - replica.passes))


def burst_limit(replica: Replica, settings: Settings) -> int:
    """By how many turns in flight may outnumber those that the last report could see. One that takes the place of another adds none."""
    if replica.load is None or settings.burst_turns_max == 0:
        return UNLIMITED
    return settings.burst_turns_max or max(BURST_TURNS_MIN, replica.load.running)


def owes(replica: Replica, settings: Settings) -> bool:
    """`batch_min_share`: the next place here is a batch turn's, if one waits for it."""
    return replica.owed + _share(settings) >= TURN


def shared(replica: Replica, turn_class: int, settings: Settings) -> Replica:
    """After it took a batch turn, or an interactive one while a batch turn waited for it. A debt is one turn at most."""
    owed = replica.owed + _share(settings) - (TURN if turn_class == TurnClass.BATCH else 0)
    return replace(replica, owed=max(0, min(owed, TURN)))


def _share(settings: Settings) -> int:
    return round(settings.batch_min_share * TURN)


def load_unknown(replica: Replica) -> bool:
    """Its metrics were readable once and are missing now. A replica that never had any isn't capped."""
    return replica.has_load and replica.load is None


def most_room(replicas: Sequence[Replica], kind: str, turn_class: int, home: str, settings: Settings) -> Replica:
    """Among replicas that admit the turn: its home; else the one with most free room, then fewest in flight, then first configured."""
    best, best_key = replicas[0], (UNLIMITED, UNLIMITED)
    for replica in replicas:
        if replica.name == home:
            return replica
        key = (-room(replica, turn_class, settings), replica.in_flight) if kind == GENERATIVE else (replica.in_flight + replica.passes, 0)
        if key < best_key:
            best, best_key = replica, key
    return best


def reserve_seconds(settings: Settings, turn_class: TurnClass) -> float:
    """So long a paused run keeps its place; 0: not at all."""
    if turn_class is not TurnClass.INTERACTIVE:
        return 0.0
    return settings.reserve_seconds_max or float("inf")


def room(replica: Replica, turn_class: int, settings: Settings) -> int:
    most = limit(replica, settings)
    if most >= UNLIMITED:
        return UNLIMITED
    return most - replica.in_flight - (replica.reserved if turn_class == TurnClass.BATCH else 0)


def arriving_seconds(settings: Settings) -> float:
    """`cap_release: at_once` is the original to the letter: there whatever waits is a queue."""
    return ARRIVING_SECONDS if settings.cap_release == "stepwise" else 0.0


def with_arrival(replica: Replica, now: float, seconds: float) -> tuple[float, ...]:
    """Its newest placements with the one of now, as far as its next report may show them as waiting although they don't."""
    if not seconds or replica.cap is not None or replica.load is None:
        return ()
    return (*[at for at in replica.arrivals if now - at <= seconds], now)[-ARRIVALS_MAX:]


def _queues(replica: Replica, load: Load, now: float, seconds: float) -> bool:
    """
    Whether what waits there is a queue, and not just turns of ours that were placed within `seconds` and begin with the next step.

    Where a cap is set already one that has just come counts, too: that engine is full, and its cap would rise with each report else.
    """
    if load.waiting == 0 or not seconds or replica.cap is not None:
        return load.waiting > 0
    return load.waiting > len([at for at in replica.arrivals if now - at <= seconds])


def reported(replica: Replica, load: Load | None, now: float, settings: Settings, reports_min: int = 1, arriving: float = 0.0) -> Replica:
    """
    The replica after a good probe with this load (None: its metrics could not be read, or there are none).

    A queue counts once `reports_min` reports in a row have shown it; until then the cap stays as it is. `arriving`: for so many seconds
    after its place a turn may be shown as waiting while it is on its way in.
    """
    queued = replica.queued + 1 if load is not None and _queues(replica, load, now, arriving) else 0
    passes_cap = max(replica.passes_cap or 0, replica.passes) + 1 if replica.pass_refused else None
    if load is None:
        # Nothing was measured: what its own answers said about being full is released as if a queue had gone.
        cap = replica.cap if replica.has_load else _released(replica, None, settings)
        load_at, has_load = replica.load_at, replica.has_load
    else:
        cap = replica.cap if 0 < queued < reports_min else _queue_cap(replica, load) if queued else _released(replica, load, settings)
        load_at, has_load = now, True
    return replace(
        replica, load=load, load_at=load_at, has_load=has_load, queued=queued, seen=replica.in_flight, peak=0, cap=cap,
        refused=False, busy=False, passes_cap=passes_cap, pass_refused=False, arrivals=(),
    )  # fmt: skip


def _queue_cap(replica: Replica, load: Load) -> int:
    """As many as it runs, but no more than one on top of those with which it has just refused one: engines serve others, too."""
    most = max(1, load.running)
    return min(most, _one_more(replica, replica.cap)) if replica.refused and replica.cap is not None else most


def _released(replica: Replica, load: Load | None, settings: Settings) -> int | None:
    """
    The cap after a report without a queue: one more while it binds, none when it no longer does.

    It binds if it was reached at any time since the last report: a turn that ends just before this one says nothing about those two
    seconds, and with gauges that trail (vLLM) a cap lifted too early lets in twice of what the engine can run. One that comes from a
    refusal since the last report is not lifted at all: where nothing is in flight one turn tries first.

    A cap below the places kept for paused runs lets no batch turn in, however idle the engine is. While the engine runs half of the cap at
    most it doubles, until one turn fits beside them: one by one, thirty agents in tool calls would keep batch out for a minute.
    """
    if replica.cap is None:
        return None
    if replica.refused:
        return _one_more(replica, replica.cap)
    if settings.cap_release == "at_once":
        return None
    if max(replica.peak, replica.in_flight + replica.reserved) < replica.cap:
        return None
    if load is not None and replica.reserved >= replica.cap and 2 * max(replica.in_flight, load.running) <= replica.cap:
        return min(2 * replica.cap, replica.reserved + 1)
    return replica.cap + 1


def _one_more(replica: Replica, cap: int) -> int:
    return cap + (replica.in_flight >= cap)


def full(replica: Replica, kind: str) -> Replica:
    """After it gave a turn of this kind back because its own queue is full (that turn is no longer counted)."""
    if kind != GENERATIVE:
        cap = replica.passes if replica.passes_cap is None else min(replica.passes_cap, replica.passes)
        return replace(replica, passes_cap=cap, pass_refused=True)
    cap = max(1, replica.in_flight if replica.cap is None else min(replica.cap, replica.in_flight))
    return replace(replica, cap=cap, peak=0, refused=True, busy=replica.in_flight == 0)
