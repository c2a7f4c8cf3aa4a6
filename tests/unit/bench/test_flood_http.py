"""Are floods over HTTP made of the same runs as those in virtual time, gone on with, and judged rightly?"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
from msgspec.structs import replace

from luftpause_bench.flood.workload import fit_a
from luftpause_bench.flood_http import played, run
from luftpause_bench.flood_http.cell import Cell, Figures, Machine, Measured
from luftpause_bench.flood_http.fronts import BY_NAME, PROGRAMS
from luftpause_bench.flood_http.judged import both, bounds
from luftpause_bench.flood_http.plans import plans
from luftpause_bench.flood_http.played import Kept, key

WORKLOAD = replace(fit_a(1.0, batch=8, interactive=2), seconds=120.0)


def test_planned_runs_are_as_long_as_those_in_virtual_time() -> None:
    made = plans(WORKLOAD, 7)
    of_class = {name: [plan for plan in made if plan.turn_class == name] for name in ("batch", "interactive")}
    assert {name: len(each) for name, each in of_class.items()} == {"batch": 480, "interactive": 120}
    for plan in made:
        assert len(plan.rounds) == 4
        first, *others = plan.rounds
        assert first.prefix_len == 250
        assert 800 <= first.input_len <= 2000
        for before, each in zip(plan.rounds, others, strict=False):
            assert each.prefix_len == before.prompt_len + before.output_len
            assert each.input_len == 60
        assert all(20 <= each.output_len <= 40 for each in plan.rounds[:-1])
        assert 120 <= plan.rounds[-1].output_len <= 256
        assert [each.tool_wait_after_ms for each in plan.rounds] == [2000.0, 2000.0, 2000.0, 0.0]
        assert {each.output_max for each in plan.rounds} == {256}
    assert 1300 < fmean(plan.rounds[0].input_len for plan in made) < 1500
    assert plans(WORKLOAD, 7) == made != plans(WORKLOAD, 8)


# ---- judging ------------------------------------------------------------------------------------------------------


def measured(variant: str, interactive: float, batch: float, kv: float = 1.0, seed: int = 1, failed: int = 0) -> Measured:
    figures = [Figures(rate, 4 * rate, 20.0, 0.5, round(3 * rate), failed) for rate in (interactive, batch)]
    machine = Machine(0.5, 1.0, 0.001, 0.01)
    return Measured(
        kv,
        variant,
        seed,
        dict(zip(("interactive", "batch"), figures, strict=True)),
        0.3,
        10.0,
        20.0,
        0.0,
        {},
        machine,
        "2026-11-30 12:00:00",
    )


def missed(cells: Sequence[Measured], virtual: dict[str, tuple[float, float]]) -> list[str]:
    rates = {(1.0, name): [{"interactive": each, "batch": other}] for name, (each, other) in virtual.items()}
    return [str(bound) for bound in bounds(both(cells, rates)) if not bound.held]


VIRTUAL = {"direct": (6.4, 79.0), "original": (13.7, 66.5)}


def test_ratios_are_judged_against_the_first_variant_and_against_virtual_time() -> None:
    router = measured("sglang-router", 6.0, 80.0)
    assert missed([router, measured("original", 12.5, 70.0)], VIRTUAL) == []
    (slow, off) = missed([router, measured("original", 10.0, 70.0)], VIRTUAL)
    assert "original's interactive runs per minute, times the direct router's: 1.667, must be >= 1.9" in slow
    assert "how far original's interactive ratio over HTTP is from that in virtual time: 0.2214, must be <= 0.2" in off
    (few, off) = missed([router, measured("original", 12.5, 60.0)], VIRTUAL)
    assert "batch runs per minute, times the direct router's: 0.75, must be >= 0.85" in few
    assert "batch ratio" in off


def test_guard_is_not_below_engine_priority_beyond_the_noise_of_the_seeds() -> None:
    base = [measured("sglang-router", 6.0, 80.0, seed=seed) for seed in (1, 2)]
    priority = [measured("vllm-router priority", rate, 70.0, seed=seed) for seed, rate in ((1, 12.0), (2, 13.0))]

    def guard(*rates: float) -> list[str]:
        return missed([*base, *priority, *(measured("guard", rate, 70.0, seed=seed) for seed, rate in enumerate(rates, 1))], {})

    assert guard(12.0, 12.6) == []
    (below,) = guard(10.0, 10.2)
    assert "guard's interactive runs per minute, times those with engine priority, within noise: 0.808, must be >= 0.9" in below


def test_a_run_that_failed_is_a_missed_bound() -> None:
    (found,) = missed([measured("sglang-router", 6.0, 80.0, failed=1)], {})
    assert "runs of sglang-router that failed: 2" in found


# ---- going on -----------------------------------------------------------------------------------------------------


def test_what_was_played_is_not_played_again_and_a_torn_line_is(tmp_path: Path) -> None:
    cells = [Cell(1.0, "direct", seed, WORKLOAD) for seed in (1, 2, 3)]
    kept = Kept(tmp_path / "cells.jsonl")
    for cell in cells[:2]:
        kept.add(cell, measured("direct", cell.seed, 1.0, seed=cell.seed))
    whole = (tmp_path / "cells.jsonl").read_bytes()
    (tmp_path / "cells.jsonl").write_bytes(whole[:-20])
    again = Kept(tmp_path / "cells.jsonl")
    assert [again.get(cell) is not None for cell in cells] == [True, False, False]
    assert again.get(cells[0]) == measured("direct", 1, 1.0, seed=1)
    assert Kept(tmp_path / "cells.jsonl", fresh=True).get(cells[0]) is None
    assert key(cells[0]) != key(replace(cells[0], speed=2.0))


def test_routers_that_are_not_here_are_left_out_and_a_part_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def instead(cells: Sequence[Cell], kept: Kept, at_once: int) -> list[Measured]:
        assert at_once == 4
        return [measured(cell.variant, 6.0 if cell.variant == "direct" else 13.0, 70.0, cell.kv, cell.seed) for cell in cells]

    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in PROGRAMS.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(run, "play_over_http", instead)
    assert run.main(["--results", str(tmp_path), "--kv", "1", "--seeds", "1", "--window", "20"]) in {0, 1}
    said = capsys.readouterr()
    assert "without sglang-router" in said.err
    assert "original" in said.out
    assert "vllm-router programs" not in said.out
    assert list(tmp_path.iterdir()) == []
    assert {variant.virtual for variant in BY_NAME.values()} == {"direct", "engine_priority", "original", "guard", ""}


def test_cells_that_fail_again_and_again_are_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[int] = []

    async def instead(cell: Cell, *_: object) -> Measured:
        tried.append(cell.seed)
        if cell.seed == 1:
            raise played.LuftpauseError("no port", code="not_ready")
        return measured(cell.variant, 6.0, 70.0, seed=cell.seed)

    monkeypatch.setattr(played, "_played", instead)
    cells = [Cell(1.0, "direct", seed, WORKLOAD) for seed in (1, 2, 3)]
    found = played.play_all(cells, Kept(tmp_path / "cells.jsonl"), at_once=2)
    assert [each.seed for each in found] == [2, 3]
    assert tried.count(1) == played.TRIES
    assert "KV x1, direct, seed 1: no port" in capsys.readouterr().err
