"""Whose home is gone when a replica's name gets another URL?"""

from msgspec.structs import replace

from luftpause.scheduler.core.holding import requeue, requeue_lanes
from luftpause.scheduler.core.indexes import Draft, put_turn
from luftpause.scheduler.core.model import Run
from luftpause.scheduler.core.responses import forget_response
from luftpause.scheduler.core.runs import move_home, put_run, with_lane


def homes_gone(d: Draft, name: str) -> None:
    """
    Prefixes and stored answers are with the former URL: runs may go elsewhere, places kept for them are given back.

    Looks at all runs, held turns and stored answers: a tenth of a microsecond each. Turns in flight stay counted with the name.
    """
    for key in sorted(key for key, run in d.runs.items() if any(lane.home == name for lane in run.lanes)):
        _leave(d, d.runs[key], name)
    for principal, response in sorted(key for key, known in d.responses.items() if known.replica == name):
        forget_response(d, principal, response)
    for id_ in sorted(id_ for id_, turn in d.turns.items() if name in {turn.kept_home, turn.replica}):
        turn = d.turns[id_]
        turn = replace(turn, strict=turn.strict and turn.replica != name, kept_home="" if turn.kept_home == name else turn.kept_home)
        put_turn(d, turn)
        requeue(d, (turn,))


def _leave(d: Draft, run: Run, name: str) -> None:
    for lane in run.lanes:
        if lane.home == name:
            before = run.lanes
            run = put_run(d, replace(run, lanes=with_lane(run, move_home(d, lane, ""))))
            requeue_lanes(d, before, run)
