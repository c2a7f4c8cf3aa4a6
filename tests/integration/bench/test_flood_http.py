"""Do floods over HTTP, with real processes, come to the same ratios as in virtual time?"""

import asyncio
from statistics import fmean

import pytest
from msgspec.structs import replace

from luftpause.cli.children import supervise
from luftpause.kit import serve
from luftpause_bench.flood.cells import Cell as VirtualCell
from luftpause_bench.flood.cells import Scene, play
from luftpause_bench.flood.workload import fit_a
from luftpause_bench.flood_http import cell as over_http
from luftpause_bench.flood_http.cell import Cell, Measured
from luftpause_bench.live.world import world
from luftpause_bench.proxy_cost.processes import free_ports

SPEED = 5.0
# Half of the testbed: as crowded, for half of the processor.
WORKLOAD = replace(fit_a(0.5, batch=24, interactive=4), warm_up_seconds=30.0, seconds=150.0)


async def both() -> list[Measured]:
    """At once, so that they find the same machine."""

    async def one(variant: str, port: int) -> Measured:
        async with world(stop) as (made, children):
            measured = await supervise(children, stop, over_http.play(made, Cell(0.5, variant, 1, WORKLOAD, SPEED), port))
        assert measured is not None
        return measured

    async with serve.stop_signals() as stop:
        return await asyncio.gather(*(one(*each) for each in zip(("direct", "original"), free_ports(2), strict=True)))


def virtual(variant: str) -> dict[str, float]:
    """Turns per minute by class, of some seeds."""
    outcomes = [play(VirtualCell(Scene("half", WORKLOAD), variant, seed)).outcome for seed in (1, 2, 3)]
    return {crowd: fmean(outcome.crowds[crowd].turns_per_minute for outcome in outcomes) for crowd in ("interactive", "batch")}


@pytest.mark.bench
@pytest.mark.timeout(300)
async def test_original_gains_over_http_what_it_gains_in_virtual_time() -> None:
    direct, original = await both()

    def ratio(crowd: str) -> float:
        return original.classes[crowd].turns_per_minute / direct.classes[crowd].turns_per_minute

    assert {name: figures.failed for each in (direct, original) for name, figures in each.classes.items()} == {"interactive": 0, "batch": 0}
    assert original.held > 5 > direct.held
    assert direct.waiting > original.waiting
    base, gained = virtual("direct"), virtual("original")
    for crowd, within in (("interactive", 0.3), ("batch", 0.2)):
        expected = gained[crowd] / base[crowd]
        assert ratio(crowd) == pytest.approx(expected, rel=within), crowd
    assert ratio("interactive") > 1.25
