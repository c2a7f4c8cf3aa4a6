"""Which engine stores which answer?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Located
from luftpause.scheduler.core.events import ResponseSeen, ResponseSought
from luftpause.scheduler.core.indexes import Draft, arm, disarm
from luftpause.scheduler.core.model import ResponseHome, Run, Timer, TurnPhase
from luftpause.scheduler.core.runs import put_run


def response_seen(d: Draft, e: ResponseSeen) -> None:
    turn = d.turns.get(e.turn)
    run = d.runs.get(turn.run) if turn else None
    if turn is not None and run is not None and turn.phase is TurnPhase.IN_FLIGHT:
        put_run(d, remember_response(d, run, e.response, turn.replica, d.now))


def response_sought(d: Draft, e: ResponseSought) -> None:
    known = d.responses.get((e.principal, e.response))
    d.decisions.append(Located(e.dataplane, e.query, known.replica if known else "", known.run if known else ""))


def remember_response(d: Draft, run: Run, response: str, replica: str, seen: float) -> Run:
    """That engine stores this answer. Returns the run, not stored."""
    if not response:
        return run
    key = (run.principal, response)
    old = d.responses.get(key)
    if old is not None:
        disarm(d, old.seen + d.settings.response_memory_seconds, Timer.RESPONSE, response, run.principal)
    d.responses = d.responses.set(key, ResponseHome(run.id, replica, seen))
    arm(d, seen + d.settings.response_memory_seconds, Timer.RESPONSE, response, run.principal)
    kept = (*(other for other in run.responses if other != response), response)
    for dropped in kept[: -d.settings.ids_per_run_max]:
        forget_response(d, run.principal, dropped)
    return replace(run, responses=kept[-d.settings.ids_per_run_max :])


def forget_response(d: Draft, principal: str, response: str) -> None:
    old = d.responses.get((principal, response))
    if old is not None:
        disarm(d, old.seen + d.settings.response_memory_seconds, Timer.RESPONSE, response, principal)
        d.responses = d.responses.delete((principal, response))


def too_old(d: Draft, principal: str, response: str) -> None:
    """It has been remembered for long enough; its timer has fired."""
    if (principal, response) in d.responses:
        d.responses = d.responses.delete((principal, response))
