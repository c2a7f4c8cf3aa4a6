"""What does guard know of a turn, and of its lane, when it is placed?"""

from msgspec.structs import replace

from luftpause.scheduler.core.frame import Facts
from luftpause.scheduler.core.guard_family import above_of, inherited, known_of, on_stems, weight_of
from luftpause.scheduler.core.guard_learn import answer_tokens, prompt_tokens, words_of
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded, Lane, LaneAccount
from luftpause.scheduler.core.model import Turn


def lane_of_turn(turn: Turn) -> Lane:
    return turn.run, turn.model


def flight(g: Guarded, engine: Engine, turn: Turn, account: LaneAccount, hoped: float) -> tuple[Engine, Flying]:
    """What is known of the turn; and the engine with what it stands on."""
    lane, above = lane_of_turn(turn), account.above
    prefix, stem = engine.prefixes.get(lane), engine.stems.get(lane) if engine.stems else None
    said = prefix.tokens if prefix is not None else stem.tokens if stem is not None else 0.0
    words = words_of(turn.flow, later=prefix is not None or turn.turn_seq > 1)
    prompt = prompt_tokens(g, engine, known_of(g, account, above), turn.model, turn.body_bytes) - inherited(engine, above)
    answer = answer_tokens(g, words, int(turn.turn_class))
    if not above and stem is None:
        return engine, Flying(lane, turn.replica, words, max(0.0, prompt), answer, said, turn.placed, hoped=hoped)
    prompt -= stem.tokens if stem is not None else 0.0
    engine, stems = on_stems(engine, lane, above)
    return engine, Flying(
        lane, turn.replica, words, max(0.0, prompt), answer, said, turn.placed, above=above, stems=stems, hoped=hoped
    )  # fmt: skip


def new_lane(facts: Facts, g: Guarded, engine: Engine, turn: Turn) -> LaneAccount:
    run = facts.runs[turn.run]
    waiting = 0
    if run.held:
        waiting = len([other for id_ in run.held if (other := facts.turns[id_]).model == turn.model and other.queue is not None])
    account = LaneAccount(turn.flow, int(turn.turn_class), turn.replica, run.born, waiting=waiting, resident=False)
    above = above_of(g, turn, None)
    if not above:
        return account
    prompt = prompt_tokens(g, engine, known_of(g, account, above), turn.model, turn.body_bytes)
    return replace(account, above=above, weight=weight_of(above, prompt))
