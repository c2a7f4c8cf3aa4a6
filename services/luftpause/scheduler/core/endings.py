"""What happens when a client ends a run?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import EndRun
from luftpause.scheduler.core.events import RunEnded
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.placement import refuse
from luftpause.scheduler.core.responses import forget_response
from luftpause.scheduler.core.runs import forget_memory, over, put_run, run_key
from luftpause.scheduler.core.verdicts import RUN_ENDED


def run_ended(d: Draft, e: RunEnded) -> None:
    d.decisions.append(EndRun(e.run, e.principal))
    run = d.runs.get(run_key(e.principal, e.run))
    if run is None:
        return
    for id_ in run.held:
        refuse(d, d.turns[id_], RUN_ENDED)
    run = forget_memory(d, d.runs[run.key])
    for response in run.responses:
        forget_response(d, run.principal, response)
    put_run(d, replace(run, responses=(), ended=True))
    over(d, run.key)
