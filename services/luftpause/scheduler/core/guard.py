"""Which turn may run without pushing out the prefix of a run that is about to come back?

A: paused prefixes are worth their place only if tools return sooner than the engine could refill its KV memory by prefill. B: of those, one
is protected while the rest of its pause is short; a batch turn that would push it out is held. C: turns that run never hold more than K;
the others wait here, not in the engine's preemption. D: class, then the caller with fewest resident runs (less with every run time that
it has waited), then the oldest run. An idle engine always takes the first; a turn whose prefix is there always passes.
"""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from luftpause.scheduler.core import admission
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.frame import Facts, Policy
from luftpause.scheduler.core.guard_accounts import ABSORBS, ended, placed, waits
from luftpause.scheduler.core.guard_family import above_of, besides, crowded, home_of, inherited, is_strange, known_of
from luftpause.scheduler.core.guard_flights import lane_of_turn
from luftpause.scheduler.core.guard_learn import (
    answer_tokens,
    next_tokens,
    prompt_tokens,
    refill_seconds,
    spare,
    words_of,
    worth,
)
from luftpause.scheduler.core.guard_model import RUN, Above, Engine, Guarded, Lane, LaneAccount
from luftpause.scheduler.core.guard_order import flow_key, place_in_flow
from luftpause.scheduler.core.guard_pauses import cost_seconds, residual_seconds
from luftpause.scheduler.core.guard_shadow import bounded, oldest_first, places, promised, room, running
from luftpause.scheduler.core.model import GENERATIVE, QueueKey, Replica, Turn
from luftpause.scheduler.core.settings import Settings

WARM = 0.9  # of a run's last context is in the shadow
RESIDUAL = 2.0  # a pause may last so many times what it takes to refill the tokens that run
PRICE_SECONDS = 30.0  # until it is known how long that takes: an agent that is dead keeps nobody out for long
SLOW_PROBES_SECONDS = 1.0  # from here on a queue counts after two reports in a row
BATCH_WAITING_MAX = 1  # in the queue of an engine that serves interactive turns first
BYTES_PER_TOKEN = 4.0  # roughly: is there room at all?
BATCH = TurnClass.BATCH


def _opens(facts: Facts, replica: Replica, queue: QueueKey) -> HoldReason | None:
    """
    The cap of the original. An engine with a priority queue serves interactive turns first: those wait only if it refuses some, and one
    batch turn may wait there, as that is in nobody's way and keeps the engine full between two reports.
    """
    if replica.spec.priority == "off" or replica.spec.router or replica.refused or queue.kind != GENERATIVE:
        return admission.admits(replica, queue.kind, queue.turn_class, facts.settings)
    if queue.turn_class == TurnClass.INTERACTIVE:
        return admission.takes(replica)
    return admission.admits(replica, queue.kind, queue.turn_class, facts.settings, spare=BATCH_WAITING_MAX)


def _admits(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    if turn.turn_class is not BATCH or turn.kind != GENERATIVE or replica.spec.router or replica.in_flight == 0:
        return None
    g: Guarded = facts.policy_state
    if replica.in_flight >= admission.limit(replica, facts.settings) and _has_many(g, turn.flow):
        return HoldReason.CAPPED
    account = g.lanes.get(lane_of_turn(turn))
    above = above_of(g, turn, account)
    if account is None and above and is_strange(g, replica.name, above) and home_of(facts, g, turn, above) not in {"", replica.name}:
        return HoldReason.STICKY
    engine = g.engines.get(replica.name)
    return _fits(facts, g, engine, turn, account, above) if engine is not None and bounded(engine) else None


def _fits(facts: Facts, g: Guarded, engine: Engine, turn: Turn, account: LaneAccount | None, above: Above) -> HoldReason | None:
    """Beside what runs and is protected there."""
    lane = lane_of_turn(turn)
    words = words_of(turn.flow, later=account is not None and account.context > 0)
    prompt = prompt_tokens(g, engine, known_of(g, account, above), turn.model, turn.body_bytes) - inherited(engine, above)
    stem, prefix = engine.stems.get(lane), engine.prefixes.get(lane)
    more, cached = besides(engine, above)
    need = max(0.0, prompt - (stem.tokens if stem is not None else 0.0)) + more + answer_tokens(g, words, int(BATCH))
    warm = stem is not None or (prefix is not None and prefix.tokens >= WARM * prefix.whole)
    if engine.holding and _is_full(engine, need if warm else need + spare(engine, facts.now)):
        return HoldReason.KV
    if warm:
        return None
    own = cached + (prefix.tokens if prefix is not None else 0.0)
    return HoldReason.PROTECT if _pushes_out(facts, g, engine, (lane, *[each for each, _ in above]), need, own) else None


def _is_full(engine: Engine, need: float) -> bool:
    """With what runs there."""
    if engine.slots and engine.turns >= engine.slots:
        return True
    return engine.kv > 0 and need > room(engine) - promised(engine)


def _has_many(g: Guarded, flow: str) -> bool:
    """And other batch callers are there: in an engine's queue its turns would be in the way of those with few, whose turns come later."""
    account = g.flows.get(flow)
    return g.batch_flows > 1 and account is not None and account.batch > RUN


def _pushes_out(facts: Facts, g: Guarded, engine: Engine, lanes: tuple[Lane, ...], need: float, own: float) -> bool:
    """Would a protected prefix have to go for it? The engine takes the oldest first. `lanes` have its own prefixes."""
    share, tokens, prefixes = facts.settings.batch_kv_share, 0.0, 0.0
    if engine.kv:
        most = min(share * room(engine), room(engine) - spare(engine, facts.now))
        tokens = need + _coming_growth(g, engine) - (most - promised(engine) - (engine.cached - own))
    if engine.slots:
        others = len(engine.prefixes) - len([lane for lane in lanes if lane in engine.prefixes])
        prefixes = 1 + engine.turns + others - share * places(engine)
    if tokens <= 0 and prefixes <= 0:
        return False
    price = _price(engine, running(engine) + need)
    for other, prefix in oldest_first(engine):
        if other in lanes:
            continue
        if _protected(facts, g, engine, other, price):
            return True
        tokens, prefixes = tokens - prefix.tokens, prefixes - 1
        if tokens <= 0 and prefixes <= 0:
            return False
    return False


def _coming_growth(g: Guarded, engine: Engine) -> float:
    """What paused runs will add when they come back."""
    interactive, batch = engine.paused
    growth = interactive.runs * next_tokens(g, 0)
    return growth + batch.runs * next_tokens(g, 1) if engine.holding else growth


def _price(engine: Engine, tokens: float) -> float:
    """The longest rest of a pause that is worth waiting for, in seconds, when so many tokens run."""
    refill = refill_seconds(engine)
    return PRICE_SECONDS if refill is None else RESIDUAL * tokens * refill


def _protected(facts: Facts, g: Guarded, engine: Engine, lane: Lane, price: float) -> bool:
    prefix, account = engine.prefixes[lane], g.lanes.get(lane)
    if prefix.coming < 0 or account is None:
        return False
    if account.waiting:
        return True  # it is about to be used
    if account.paused_at < 0:
        return False
    seconds, bias = cost_seconds(g.pauses.get(account.tool)), facts.settings.hold_bias
    if not worth(engine, seconds, bias, holding=engine.holding if account.turn_class else True):
        return False
    return residual_seconds(g, account.tool, facts.now - account.paused_at) <= price


def _choose(facts: Facts, turn: Turn, home: str, replicas: Sequence[Replica]) -> Replica:
    """Home, else where fewest turns run of those with room that no paused run needs; without any, where most is."""
    if turn.kind != GENERATIVE:
        return admission.most_room(replicas, turn.kind, turn.turn_class, home, facts.settings)
    g: Guarded = facts.policy_state
    if not home and turn.parent and (above := above_of(g, turn, g.lanes.get(lane_of_turn(turn)))):
        home = home_of(facts, g, turn, above)
        if home and crowded(facts.replicas[home].in_flight, min(replica.in_flight for replica in replicas)):
            home = ""
    best, best_key = replicas[0], (float("inf"), 0.0)
    for replica in replicas:
        if replica.name == home:
            return replica
        free = _free(g.engines.get(replica.name), replica) - turn.body_bytes / BYTES_PER_TOKEN
        key = (float(replica.in_flight), -free) if free > 0 else (1e9 - free, 0.0)
        if key < best_key:
            best, best_key = replica, key
    return best


def _free(engine: Engine | None, replica: Replica) -> float:
    if engine is None or replica.spec.router:
        return -float(replica.in_flight)
    kept = engine.paused[0].tokens + (engine.paused[1].tokens if engine.holding else 0.0)
    return (room(engine) if engine.kv_reported else 0.0) - promised(engine) - kept


def _priority(facts: Facts, turn: Turn) -> int | UnsetType:
    """Interactive turns say what an engine takes where nothing is said: 0; batch goes behind."""
    replica = facts.replicas.get(turn.replica)
    if turn.kind != GENERATIVE or replica is None or replica.spec.priority == "off":
        return UNSET
    return int(turn.turn_class) if replica.spec.priority == "vllm" else -int(turn.turn_class)


def _queue_reports(settings: Settings) -> int:
    """A single request seen waiting at the moment of a slow probe would cap an engine for all of its period."""
    return 2 if settings.probe_seconds >= SLOW_PROBES_SECONDS else 1


def _reserve(facts: Facts, turn_class: TurnClass, home: str) -> float:
    """Rule B keeps what paused interactive runs need. Behind a router nobody knows which engine has their prefixes: places are kept."""
    replica = facts.replicas.get(home)
    return admission.reserve_seconds(facts.settings, turn_class) if replica is not None and replica.spec.router else 0.0


GUARD = Policy(
    initial=lambda _: Guarded(),
    absorbs=ABSORBS,
    flow_key=flow_key,
    place_in_flow=place_in_flow,
    opens=_opens,
    admits=_admits,
    choose=_choose,
    reserve=_reserve,
    placed=placed,
    ended=ended,
    waits=waits,
    priority=_priority,
    queue_reports=_queue_reports,
)
