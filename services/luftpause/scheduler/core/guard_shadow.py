"""Which prefixes does an engine hold, as far as the scheduler can tell?

The shadow is the scheduler's own LRU of what finished turns left in an engine's KV memory, that of ended runs too: the engine keeps it.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from luftpause.scheduler.core.fifo import fifo
from luftpause.scheduler.core.guard_model import Engine, Lane, Paused, Prefix

RUNNING_SHARE = 0.5  # of its answer a turn in flight has got, on average
GONE_KEPT = 256  # so many more may stand in the order of an engine's prefixes than are there
PREFIXES_MAX = 20_000  # of one engine: runs whose prompts are all shared and whose answers are short take next to no memory there, but here


def room(engine: Engine) -> float:
    """KV tokens beyond what all runs share."""
    return max(0.0, engine.kv - engine.shared)


def bounded(engine: Engine) -> bool:
    """Whether it is known how much stays there."""
    return engine.kv > 0 or engine.slots > 0


def places(engine: Engine) -> int:
    """Of prefixes, with the turns that run."""
    return round(engine.kept) if engine.slots else PREFIXES_MAX + engine.turns


def whole(engine: Engine) -> float:
    """Tokens of prefixes that it keeps, beyond what all runs share: as many as fit, or as usual contexts in its places have."""
    return room(engine) if engine.kv else places(engine) * max(0.0, engine.context.value - engine.shared)


def running(engine: Engine) -> float:
    """Tokens that turns in flight hold now, about."""
    return engine.stem_tokens + engine.prompts + RUNNING_SHARE * engine.answers


def promised(engine: Engine) -> float:
    """Tokens that they will hold at their ends."""
    return engine.stem_tokens + engine.prompts + engine.answers


def put(engine: Engine, lane: Lane, number: int, tokens: float, coming: int) -> Engine:
    """
    The newest prefix; one of the same lane is replaced. Where nobody knows how much stays nothing is ever pushed out: there only those are
    kept that runs will come back for.
    """
    engine = taken(engine, lane)
    if coming < 0 and not bounded(engine):
        return engine
    prefix = Prefix(number, tokens, tokens, coming)
    engine = replace(
        engine, prefixes=engine.prefixes.set(lane, prefix), order=engine.order.append((number, lane)), cached=engine.cached + tokens,
        paused=_counted(engine.paused, coming, 1, tokens),
    )  # fmt: skip
    return _tidied(engine) if engine.order.size > 2 * len(engine.prefixes) + GONE_KEPT else engine


def taken(engine: Engine, lane: Lane) -> Engine:
    """Its run goes on: what is there becomes part of a turn in flight."""
    prefix = engine.prefixes.get(lane)
    if prefix is None:
        return engine
    return replace(
        engine, prefixes=engine.prefixes.delete(lane), cached=engine.cached - prefix.tokens,
        paused=_counted(engine.paused, prefix.coming, -1, -prefix.tokens),
    )  # fmt: skip


def left_behind(engine: Engine, lane: Lane) -> Engine:
    """Its run will not come back; the prefix stays until it is pushed out."""
    prefix = engine.prefixes.get(lane)
    if prefix is None or prefix.coming < 0:
        return engine
    if not bounded(engine):
        return taken(engine, lane)
    paused = _counted(engine.paused, prefix.coming, -1, -prefix.tokens)
    return replace(engine, prefixes=engine.prefixes.set(lane, replace(prefix, coming=-1)), paused=paused)


def cut(engine: Engine) -> tuple[Engine, list[Lane]]:
    """Push out the oldest until what runs and what is cached fit; also says who has lost all of its prefix."""
    if not bounded(engine):
        return engine, []
    excess = engine.cached - max(0.0, room(engine) - running(engine)) if engine.kv else 0.0
    most = max(0, places(engine) - engine.turns)
    if excess <= 0 and len(engine.prefixes) <= most:
        return engine, []
    lost: list[Lane] = []
    passed = 0
    for number, lane in engine.order:
        prefix = engine.prefixes.get(lane)
        if prefix is not None and prefix.number == number:
            crowded = len(engine.prefixes) > most
            if excess <= 0 and not crowded:
                break
            if 0 < excess < prefix.tokens and not crowded:
                engine = _shortened(engine, lane, prefix, excess)
                break
            excess -= prefix.tokens
            engine = taken(engine, lane)
            lost.append(lane)
        passed += 1
    return replace(engine, order=engine.order.without_first(passed)), lost


def _shortened(engine: Engine, lane: Lane, prefix: Prefix, tokens: float) -> Engine:
    """So many of the prefix's tokens are pushed out."""
    return replace(
        engine, prefixes=engine.prefixes.set(lane, replace(prefix, tokens=prefix.tokens - tokens)), cached=engine.cached - tokens,
        paused=_counted(engine.paused, prefix.coming, 0, -tokens),
    )  # fmt: skip


def oldest_first(engine: Engine) -> Iterator[tuple[Lane, Prefix]]:
    for number, lane in engine.order:
        prefix = engine.prefixes.get(lane)
        if prefix is not None and prefix.number == number:
            yield lane, prefix


def _tidied(engine: Engine) -> Engine:
    """The order without those that are there no more: a step per prefix that is, after at least as many have gone."""
    return replace(engine, order=fifo(sorted([(prefix.number, lane) for lane, prefix in engine.prefixes.items()])))


def _counted(paused: tuple[Paused, Paused], coming: int, runs: int, tokens: float) -> tuple[Paused, Paused]:
    if coming < 0:
        return paused
    new = Paused(paused[coming].runs + runs, paused[coming].tokens + tokens)
    return (new, paused[1]) if coming == 0 else (paused[0], new)
