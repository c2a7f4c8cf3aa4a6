"""What do reports teach the guard policy: speeds, lengths, and how much an engine can hold?"""

from msgspec.structs import replace

from luftpause.scheduler.core.events import Load, Usage
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded, LaneAccount, Mean, Words
from luftpause.scheduler.core.guard_shadow import PREFIXES_MAX, bounded, room, running, whole

CALLERS_MAX, MODELS_MAX = 4096, 512  # beyond them what is new is not told apart
TOKENS_PER_BYTE = 0.25  # until a model has told its own
PROMPT_TOKENS = 1000.0  # of a turn of which nothing is known
ANSWER_TOKENS = 128.0
FIRSTS_KEPT = 15  # first turns of which it is remembered what they found cached
KNOWN = 3  # so many values are needed before they are believed
NOTHING_KNOWN = Mean()

GONE, HERE, CREEP, RUSH = 0.97, 1.03, 1.0005, 1.02  # what a surprise, and none, does to K: one surprise in 60 turns at rest
PLACE, PLACE_SHARE = 0.25, 0.03  # what most turns say changes the places of an engine of slots by so many, at least by such a part
JUDGES = 8  # turns, at least
EMPTY = 2.0  # a memory so many times as large as what is known to be there is no larger because that is found
MUCH, LITTLE = 0.5, 0.1  # parts of a prompt: "it is here", "it is gone"
HYSTERESIS = 1.25
SPARE_REFILLS = 2.0  # as `RESIDUAL` of a pause: less memory costs less than its part of the speed
SPARE_MOST = 0.25  # of the memory may stay free for an interactive run
FIXED_SHARE_MAX = 0.33  # of a cold turn's first token: where hardly any turn is warm, what is known of the fixed part is old


# ---- lengths ----------------------------------------------------------------------------------------------------


def words_of(flow: str, *, later: bool) -> Words:
    return flow, later


def answer_tokens(g: Guarded, words: Words, turn_class: int) -> float:
    """Of a turn's answer, by its caller, else by its class."""
    own = g.answers.get(words)
    if own is not None and own.count > KNOWN:
        return own.value
    mean = g.answers_of_class[2 * turn_class + words[1]]
    return mean.value if mean.count > KNOWN else ANSWER_TOKENS


def next_tokens(g: Guarded, turn_class: int) -> float:
    """What a paused run will add when it comes back: the tool's result and an answer."""
    mean = g.answers_of_class[2 * turn_class + 1]
    return (mean.value if mean.count > KNOWN else ANSWER_TOKENS) + g.results[turn_class].value


def prompt_tokens(g: Guarded, engine: Engine | None, lane: LaneAccount | None, model: str, body_bytes: int) -> float:
    """
    Of a request: from the last prompt of `lane` and what was added since, which is its answer too, else by its size, else as others.
    `lane`: its run's account; its parent's, if it begins with that one's context.
    """
    mean = g.tokens_per_byte.get(model)
    per_byte = mean.value if mean is not None and mean.count > KNOWN else TOKENS_PER_BYTE
    if lane is not None and lane.context:
        if not (body_bytes and lane.body_bytes):
            return lane.context
        return lane.prompt + max(0.0, (body_bytes - lane.body_bytes) * per_byte)
    if body_bytes:
        return body_bytes * per_byte
    return engine.prompt.value if engine is not None and engine.prompt.count > KNOWN else PROMPT_TOKENS


def with_lengths(g: Guarded, flying: Flying, lane: LaneAccount, turn_class: int, model: str, body_bytes: int, usage: Usage) -> Guarded:
    """What a finished turn says about lengths."""
    words, answers, per_byte, results = flying.words, g.answers, g.tokens_per_byte, g.results
    prompt, completion = usage.prompt, usage.completion
    known = answers.get(words)
    if known is not None or len(answers) < CALLERS_MAX:
        answers = answers.set(words, (known or NOTHING_KNOWN).add(completion))
    of_class = list(g.answers_of_class)
    kind = 2 * turn_class + words[1]
    of_class[kind] = of_class[kind].add(completion)
    if body_bytes and prompt:
        known = per_byte.get(model)
        if known is not None or len(per_byte) < MODELS_MAX:
            per_byte = per_byte.set(model, (known or NOTHING_KNOWN).add(prompt / body_bytes))
    if words[1] and lane.context and prompt >= lane.context:
        added = list(results)
        added[turn_class] = added[turn_class].add(prompt - lane.context)
        results = (added[0], added[1])
    return replace(
        g, answers=answers, answers_of_class=(of_class[0], of_class[1], of_class[2], of_class[3]), tokens_per_byte=per_byte,
        results=results,
    )  # fmt: skip


# ---- speed ------------------------------------------------------------------------------------------------------


def with_first_token(engine: Engine, seconds: float, prompt: float, uncached: float) -> Engine:
    """A turn's first token took so long."""
    usual = engine.prompt.value
    if uncached < max(100.0, 0.1 * usual):
        engine = replace(engine, fixed_seconds=engine.fixed_seconds.add(seconds))
    if uncached >= max(200.0, 0.3 * usual):
        fixed = min(engine.fixed_seconds.value, FIXED_SHARE_MAX * seconds)
        per_token = max(1e-6, (seconds - fixed) / uncached)
        engine = replace(engine, token_seconds=engine.token_seconds.add(per_token))
    del prompt
    return engine


def refill_seconds(engine: Engine) -> float | None:
    """To compute one lost token of a context anew; None: not known yet."""
    if engine.token_seconds.count <= KNOWN:
        return None
    lost = max(0.0, engine.prompt.value - engine.shared) / max(1.0, engine.context.value)
    return engine.token_seconds.value * lost


def with_interactive(engine: Engine, now: float) -> Engine:
    """A new interactive run comes."""
    gap = engine.interactive_gap if engine.interactive_at < 0 else engine.interactive_gap.add(now - engine.interactive_at)
    return replace(engine, interactive_at=now, interactive_gap=gap)


def spare(engine: Engine, now: float) -> float:
    """
    Tokens that batch leaves to the next interactive run. Its turns are never held, and where there is no room they push out what other runs
    come back for. That costs more than a place that stays empty if it comes sooner than the engine could refill its KV memory twice.
    """
    if not engine.holding or engine.interactive_gap.count < KNOWN or (refill := refill_seconds(engine)) is None:
        return 0.0
    if max(engine.interactive_gap.value, now - engine.interactive_at) > SPARE_REFILLS * whole(engine) * refill:
        return 0.0
    return min(engine.interactive.value, SPARE_MOST * room(engine))


def worth(engine: Engine, seconds: float, bias: float, *, holding: bool) -> bool:
    """Rule A: tools that return sooner than the engine could refill its whole KV memory are worth holding a prefix for."""
    if not bounded(engine) or (refill := refill_seconds(engine)) is None:
        return True
    limit = bias * whole(engine) * refill
    return seconds <= (limit * HYSTERESIS if holding else limit / HYSTERESIS)


# ---- K ----------------------------------------------------------------------------------------------------------


def with_usage(engine: Engine, flying: Flying, usage: Usage, now: float) -> Engine:
    """What the engine counted, and what that says about its KV memory where the shadow expected something else."""
    context, prompt = engine.context.add(usage.prompt + usage.completion), engine.prompt.add(usage.prompt)
    later, above = flying.words[1], flying.above
    if usage.cached is not None and not later and not above:
        firsts = (*engine.firsts[1 - FIRSTS_KEPT :], float(usage.cached))
        return replace(engine, context=context, prompt=prompt, firsts=firsts, shared=sorted(firsts)[len(firsts) // 4])
    engine = replace(engine, context=context, prompt=prompt)
    if usage.cached is None or not bounded(engine) or not later:
        return engine
    shared = max(engine.shared, above[0][1]) if above else engine.shared
    own = max(1.0, usage.prompt - shared)
    said, got = min(flying.said, own), max(0.0, usage.cached - shared)
    may_fall = now if flying.placed >= engine.lowered_at else None
    if engine.slots:
        engine = _surprised_in_slots(engine, own, said, got, may_fall)
    return _surprised(engine, own, said, got, may_fall) if engine.kv else engine


def _surprised(engine: Engine, own: float, said: float, got: float, now: float | None) -> Engine:
    """K after a turn with `own` prompt tokens, of which the shadow `said` and the engine `got` so many. `now` None: it may not fall."""
    kv, surprised, lowered_at = engine.kv, engine.surprised, engine.lowered_at
    if said > MUCH * own and got < MUCH * said:
        if now is not None:
            kv, surprised, lowered_at = kv * GONE, True, now
    elif said < LITTLE * own and got > MUCH * own:
        kv *= HERE
    elif said > MUCH * own and (engine.kv_reported or room(engine) <= EMPTY * (engine.cached + running(engine))):
        kv *= CREEP if engine.kv_reported or surprised else RUSH
    if engine.kv_reported:
        kv = min(kv, engine.kv_reported)
    if kv == engine.kv and lowered_at == engine.lowered_at:
        return engine
    return replace(engine, kv=kv, surprised=surprised, lowered_at=lowered_at)


def _surprised_in_slots(engine: Engine, own: float, said: float, got: float, now: float | None) -> Engine:
    """
    How many prefixes stay: as many as there are slots, more where the engine puts elsewhere what loses its slot, and brings it back; if
    they share a memory that is short of tokens, that has a K besides. Only what most turns say counts: which slot a turn is given is a
    matter of likeness too, so that in any case some prefixes are gone and others are still there.
    """
    if said > MUCH * own:
        engine = replace(engine, gone=engine.gone.add(float(got < MUCH * said)))
        if got < MUCH * said and now is not None and _most(engine.gone):
            return _fewer(engine, own, now)
    elif said < LITTLE * own:
        engine = replace(engine, here=engine.here.add(float(got > MUCH * own)))
        if got > MUCH * own and _most(engine.here):
            return replace(engine, kept=min(engine.kept + _step(engine), float(PREFIXES_MAX)))
    return engine


def _fewer(engine: Engine, own: float, now: float) -> Engine:
    if engine.kept > engine.slots:
        return replace(engine, kept=max(engine.kept - _step(engine), float(engine.slots)), lowered_at=now)
    return engine if engine.kv else replace(engine, kv=engine.shared + running(engine) + engine.cached + own)


def _step(engine: Engine) -> float:
    return max(PLACE, PLACE_SHARE * engine.kept)


def _most(found: Mean) -> bool:
    return found.count >= JUDGES and found.value > MUCH


def with_report(engine: Engine, load: Load, running_tokens: float) -> Engine:
    """
    A load report. An engine that tells slots has as many places to begin with. Where nothing is told K is what runs when a queue first
    shows, which is in flight but for the part that waits; and what runs without a queue is at most K.
    """
    if load.kv_tokens:
        if load.kv_tokens == engine.kv_reported:
            return engine
        return replace(engine, kv=float(load.kv_tokens), kv_reported=float(load.kv_tokens))
    if load.slots and load.slots != engine.slots:
        return replace(engine, slots=load.slots, kept=float(load.slots), kv=0.0)
    if engine.kv_reported or engine.slots:
        return engine  # it was told before: this report lacks it
    if load.running and load.waiting and not engine.kv:
        return replace(engine, kv=running_tokens * load.running / (load.running + load.waiting) + engine.shared)
    used = running_tokens + engine.shared
    return replace(engine, kv=max(engine.kv, used)) if load.waiting == 0 and engine.kv else engine
