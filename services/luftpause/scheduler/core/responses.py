"""Which engine stores which answer?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Located
from luftpause.scheduler.core.events import ResponseSeen, ResponseSought
from luftpause.scheduler.core.indexes import Draft, arm, disarm
from luftpause.scheduler.core.model import ResponseHome, Run, TurnPhase
from luftpause.scheduler.core.runs import put_run
from luftpause.scheduler.core.timing import Timer


def response_seen(d: Draft, e: ResponseSeen) -> None:
    turn = d.turns.get(e.turn)
    run = d.runs.get(turn.run) if turn else None
    if turn is not None and run is not None and turn.phase is TurnPhase.IN_FLIGHT and turn.dataplane == e.dataplane:
        put_run(d, remember_response(d, run, e.response, turn.replica, d.now))


def response_sought(d: Draft, e: ResponseSought) -> None:
    known = d.responses.get((e.principal, e.response))
    d.decisions.append(Located(e.dataplane, e.query, known.replica if known else "", known.run if known else ""))


def remember_response(d: Draft, run: Run, response: str, replica: str, seen: float) -> Run:
    """That engine stores this answer. Returns the run, not stored. Where too many are known the oldest is forgotten."""
    if not response:
        return run
    before = _oldest(d)
    if (run.principal, response) in d.responses:
        _drop(d, run.principal, response)
    elif len(d.responses) >= d.settings.responses_max and before is not None:
        _drop(d, *before[1:])
    kept = (*(other for other in run.responses if other != response), response)
    for dropped in kept[: -d.settings.ids_per_run_max]:
        _drop(d, run.principal, dropped)
    d.responses = d.responses.set((run.principal, response), ResponseHome(run.id, replica, seen))
    d.response_order = d.response_order.add((seen, run.principal, response))
    _rearm(d, before)
    return replace(run, responses=kept[-d.settings.ids_per_run_max :])


def forget_response(d: Draft, principal: str, response: str) -> None:
    before = _oldest(d)
    _drop(d, principal, response)
    _rearm(d, before)


def sweep(d: Draft) -> None:
    """Forget what has been remembered for long enough; the timer of the oldest has fired."""
    oldest = d.now - d.settings.response_memory_seconds
    while (first := _oldest(d)) is not None and first[0] <= oldest and d.expiries_left > 0:
        d.expiries_left -= 1
        _drop(d, *first[1:])
    _rearm(d, None)


def _oldest(d: Draft) -> tuple[float, str, str] | None:
    return d.response_order.first() if d.response_order.size else None


def _drop(d: Draft, principal: str, response: str) -> None:
    known = d.responses.get((principal, response))
    if known is not None:
        d.responses = d.responses.delete((principal, response))
        d.response_order = d.response_order.remove((known.seen, principal, response))


def _rearm(d: Draft, before: tuple[float, str, str] | None) -> None:
    """One timer, at the oldest."""
    first = _oldest(d)
    if first == before:
        return
    if before is not None:
        disarm(d, before[0] + d.settings.response_memory_seconds, Timer.RESPONSE, "")
    if first is not None:
        arm(d, first[0] + d.settings.response_memory_seconds, Timer.RESPONSE, "")
