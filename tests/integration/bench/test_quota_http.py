"""Does the governor keep critical calls out of the queue over HTTP, with real processes, as in virtual time?"""

import asyncio

import pytest

from luftpause.cli.children import supervise
from luftpause.kit import serve
from luftpause_bench.live.world import world
from luftpause_bench.quota.over_http import measure, scene_of
from luftpause_bench.quota.play import GOVERNOR, Figures

JITTER = "full jitter, Retry-After"


async def both() -> dict[str, Figures]:
    async with serve.stop_signals() as stop, world(stop) as (made, children):
        found = await supervise(children, stop, measure(made, scene_of(2.0), [GOVERNOR, JITTER], 2))
    assert found is not None
    return found


@pytest.mark.bench
@pytest.mark.timeout(300)
async def test_critical_calls_are_served_at_once_where_others_wait_for_the_hour() -> None:
    found = await asyncio.wait_for(both(), 280)
    governed, jitter = found[GOVERNOR], found[JITTER]
    assert governed.sent > 300
    assert governed.classes[0].failed == 0
    assert governed.refused <= governed.in_flight_at_first + governed.probes
    assert governed.classes[0].p99 < jitter.classes[0].p99
    assert governed.classes[0].served > jitter.classes[0].served
