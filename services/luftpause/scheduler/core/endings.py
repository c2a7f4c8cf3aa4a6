"""What happens when a client ends a run?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import EndRun
from luftpause.scheduler.core.events import RunEnded
from luftpause.scheduler.core.holding import refuse
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.model import Run, run_key
from luftpause.scheduler.core.responses import forget_response
from luftpause.scheduler.core.runs import forget_memory, over, put_run
from luftpause.scheduler.core.tombstones import AGE_ERROR_SECONDS, ended_at, remember_end, told_before
from luftpause.scheduler.core.verdicts import RUN_ENDED


def run_ended(d: Draft, e: RunEnded) -> None:
    """
    The run is forgotten here and everywhere, unless it has had a turn since.

    Dataplanes repeat this after each Hello: what is known already is not told to all again. A dataplane whose memory still has the run is
    told when it says so.
    """
    key = run_key(e.principal, e.run)
    at = d.now if e.ended is None else min(e.ended, d.now)
    if at < d.now and at <= ended_at(d, key) + AGE_ERROR_SECONDS:
        return
    if at <= d.now - d.settings.run_idle_seconds:
        return  # by now nobody remembers it
    remember_end(d, key, at)
    run = d.runs.get(key)
    if run is not None and not told_before(run, run.asked, at):
        return
    d.decisions.append(EndRun(e.run, e.principal))
    if run is not None:
        _end(d, run)


def _end(d: Draft, run: Run) -> None:
    """Held turns are refused, those in flight finish, then it is forgotten."""
    for id_ in sorted(run.held):
        refuse(d, d.turns[id_], RUN_ENDED)
    run = forget_memory(d, d.runs[run.key])
    for response in run.responses:
        forget_response(d, run.principal, response)
    put_run(d, replace(run, responses=(), ended=True))
    over(d, run.key)
