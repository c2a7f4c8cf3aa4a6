"""Which context does a sub-agent's prompt begin with, which engine has it, and how does it count once?

A sub-agent that is called with its parent's whole context finds that in an engine's KV memory, and so do its siblings: it is there once
while any of them runs, whatever becomes of the parent. Such a context is a stem, and what turns hold beyond it is theirs. Sub-agents that
begin with a task of their own have none: the size of their requests tells, and what the first of a caller's found cached.
"""

from msgspec.structs import replace

from luftpause.scheduler.core.frame import Facts
from luftpause.scheduler.core.guard_learn import CALLERS_MAX, KNOWN, MUCH
from luftpause.scheduler.core.guard_model import RUN, Above, Engine, Flying, Guarded, Lane, LaneAccount, Mean, Stem
from luftpause.scheduler.core.guard_shadow import left_behind, put, taken
from luftpause.scheduler.core.model import Health, Turn, run_key

DEPTH_MAX = 8  # parents of parents that are looked at
BODY_LEAST = 0.75  # of its parent's last request: a shorter one can't begin with all of that
CROWD_SPARE = 4  # so many more than twice as many turns may run where its family is as elsewhere


# ---- who ----------------------------------------------------------------------------------------------------------


def above_of(g: Guarded, turn: Turn, account: LaneAccount | None) -> Above:
    """What the turn's prompt is taken to begin with. `account`: of its lane, None before its first placement."""
    if account is not None:
        return account.above
    return kin_of(g, turn) if turn.parent and _believed(g, turn.flow) else ()


def kin_of(g: Guarded, turn: Turn) -> Above:
    """What the first turn of a sub-agent may begin with, as far as sizes tell."""
    lane = (run_key(turn.principal, turn.parent), turn.model)
    parent = g.lanes.get(lane)
    if parent is None or not parent.context or turn.run in (lane[0], *(above[0] for above, _ in parent.above)):
        return ()
    if not turn.body_bytes or turn.body_bytes < BODY_LEAST * parent.body_bytes:
        return ()
    return ((lane, parent.context), *parent.above)[:DEPTH_MAX]


def known_of(g: Guarded, account: LaneAccount | None, above: Above) -> LaneAccount | None:
    """Whose last context tells how long the prompt is: its own lane's; on its first turn that of the parent whose context it has."""
    return g.lanes.get(above[0][0]) if above and not (account is not None and account.context) else account


def _believed(g: Guarded, flow: str) -> bool:
    found = g.forks.get(flow)
    return found is None or found.count < KNOWN or found.value >= MUCH


def hopes(g: Guarded, engine: Engine, turn: Turn) -> float:
    """So much of what a sub-agent's first turn may begin with is there, if that is enough to tell from what it finds cached; else 0."""
    kin = kin_of(g, turn)
    found = there(engine, kin)
    return found if kin and found >= MUCH * (kin[0][1] - engine.shared) else 0.0


def with_fork(g: Guarded, flying: Flying, flow: str, found: float) -> tuple[Guarded, bool]:
    """What the first turn of a sub-agent teaches of its caller's; and whether it forked. `found`: cached tokens beyond what all share."""
    forked = found >= MUCH * flying.hoped
    forks = g.forks
    if flow in forks or len(forks) < CALLERS_MAX:
        forks = forks.set(flow, forks.get(flow, Mean()).add(float(forked), 0.1))
    return replace(g, forks=forks), forked


# ---- how much -----------------------------------------------------------------------------------------------------


def inherited(engine: Engine | None, above: Above) -> float:
    """So many tokens of a prompt are not its own."""
    shared = engine.shared if engine is not None else 0.0
    return max(shared, above[0][1]) if above else shared


def there(engine: Engine, above: Above) -> float:
    """Tokens of it that the engine has, beyond those that all share."""
    total = 0.0
    for lane, _ in above:
        stem, prefix = engine.stems.get(lane), engine.prefixes.get(lane)
        total += stem.tokens if stem is not None else prefix.tokens if prefix is not None else 0.0
    return total


def besides(engine: Engine, above: Above) -> tuple[float, float]:
    """What its first turn takes of the memory besides what is its own: tokens that no stem holds, and how many of those are cached."""
    if not above:
        return 0.0, 0.0
    held = sum([stem.tokens for lane, _ in above if (stem := engine.stems.get(lane)) is not None])
    cached = sum([prefix.tokens for lane, _ in above if (prefix := engine.prefixes.get(lane)) is not None])
    return max(0.0, above[0][1] - engine.shared - held), cached


def weight_of(above: Above, prompt: float) -> int:
    """As a part of a run, in thousandths: what it holds beyond its parents' contexts."""
    return min(RUN, max(1, round(RUN * (1 - above[0][1] / prompt)))) if above and prompt > 0 else RUN


# ---- stems --------------------------------------------------------------------------------------------------------


def on_stems(engine: Engine, lane: Lane, above: Above) -> tuple[Engine, tuple[Lane, ...]]:
    """The engine with a turn of the lane on what its prompt begins with; and whose contexts those are, the lane's own first."""
    stems = tuple([each for each, _ in above])
    for number, (each, until) in enumerate(above):
        begins = above[number + 1][1] if number + 1 < len(above) else 0.0
        engine = _on(engine, each, max(0.0, until - max(engine.shared, begins)))
    return (_on(engine, lane, 0.0), (lane, *stems)) if lane in engine.stems else (engine, stems)


def _on(engine: Engine, lane: Lane, tokens: float) -> Engine:
    stem = engine.stems.get(lane)
    if stem is not None:
        return replace(engine, stems=engine.stems.set(lane, replace(stem, turns=stem.turns + 1)))
    prefix, coming = engine.prefixes.get(lane), -1
    if prefix is not None:
        tokens, coming = max(tokens, prefix.tokens), prefix.coming
        engine = taken(engine, lane)
    return replace(engine, stems=engine.stems.set(lane, Stem(tokens, 1, coming)), stem_tokens=engine.stem_tokens + tokens)


def off_stems(engine: Engine, stems: tuple[Lane, ...], number: int) -> Engine:
    """The turn that stood on them has ended. Those that carry none any more are the newest prefixes, after `number`."""
    for lane in stems:
        number += 1
        stem = engine.stems[lane]
        if stem.turns > 1:
            engine = replace(engine, stems=engine.stems.set(lane, replace(stem, turns=stem.turns - 1)))
            continue
        rest = engine.stems.delete(lane)
        engine = replace(engine, stems=rest, stem_tokens=engine.stem_tokens - stem.tokens if rest else 0.0)
        engine = put(engine, lane, number, stem.tokens, stem.coming)
    return engine


def rested(engine: Engine, lane: Lane, number: int, tokens: float, coming: int) -> Engine:
    """A turn of the lane has left so many tokens of its own: as a prefix, or in the stem that others stand on."""
    stem = engine.stems.get(lane)
    if stem is None:
        return put(engine, lane, number, tokens, coming)
    grown = replace(stem, tokens=tokens, coming=coming)
    return replace(engine, stems=engine.stems.set(lane, grown), stem_tokens=engine.stem_tokens + tokens - stem.tokens)


def forsaken(engine: Engine, lane: Lane) -> Engine:
    """The lane's run will not come back; who stands on its context goes on."""
    stem = engine.stems.get(lane)
    if stem is None:
        return left_behind(engine, lane)
    return replace(engine, stems=engine.stems.set(lane, replace(stem, coming=-1))) if stem.coming >= 0 else engine


# ---- where --------------------------------------------------------------------------------------------------------


def home_of(facts: Facts, g: Guarded, turn: Turn, above: Above) -> str:
    """The replica of its parent, if its first turn can go there; else empty."""
    parent = g.lanes.get(above[0][0]) if above else None
    if parent is None or parent.replica in turn.without:
        return ""
    if turn.queue is not None and parent.replica in (*turn.queue.unusable, *turn.queue.suspect):
        return ""
    home = facts.replicas.get(parent.replica)
    return home.name if home is not None and home.health is Health.HEALTHY and not home.removed else ""


def is_strange(g: Guarded, name: str, above: Above) -> bool:
    """Nothing of its family is at this replica."""
    engine = g.engines.get(name)
    return engine is None or not (above[0][0] in engine.stems or above[0][0] in engine.prefixes)


def crowded(in_flight: int, elsewhere: int) -> bool:
    """So many more turns run at its home that a lost prefix costs less."""
    return in_flight > 2 * elsewhere + CROWD_SPARE
