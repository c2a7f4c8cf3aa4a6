"""Do benchmarks with real processes order, count and judge what they should?"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from luftpause.cli.subagents import SubAgentRun
from luftpause.kit.errors import LuftpauseError
from luftpause_bench import decide, fanout, llama_guard, quota_latency, registry, routing, spawn_flood
from luftpause_bench.live import routers
from luftpause_bench.live.crowds import SYSTEM, Ended, OfCrowd, figures, percentile, text
from luftpause_bench.live.programs import Program, wait_until
from luftpause_bench.proc import cpu_seconds, family, memory_bytes
from luftpause_bench.report import as_json
from luftpause_bench.scale import main as scale
from luftpause_bench.scale.at_once import AtOnce
from luftpause_bench.scale.held_turns import Taken
from luftpause_bench.scale.steady_work import Sample, Steady, growth
from luftpause_bench.scale.watched_runtime import Watch
from luftpause_fakes.engine_directives import directives, without_directives
from luftpause_fakes.engine_text import TOKEN_CHARACTERS


def ran(seconds: float = 1.0, *, prompt: int = 100, cached: int = 0) -> SubAgentRun:
    return SubAgentRun("h", "Completed", seconds=seconds, turns=2, prompt_tokens=prompt, cached_tokens=cached)


def of_crowd(rate: float, cached: float = 0.5) -> OfCrowd:
    return OfCrowd(10, rate, 1.0, 2.0, cached)


def held(report: object) -> list[bool]:
    return [bound.held for bound in report.bounds]


# ---- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("characters", [400, 3_200, 8_000])
def test_a_task_has_its_length_and_orders_its_run_from_a_fake_engine(characters: int) -> None:
    made = text(Random(1), "batch 3-4", characters, calls=2, answer_tokens=150, query_characters=80)
    assert characters - 40 <= len(made) <= characters
    ordered = directives([made])
    assert (ordered.calls, ordered.tool, ordered.answer) == (2, "lookup", 150)
    assert 50 <= len(ordered.args["query"]) <= 80
    assert without_directives(made).startswith("batch 3-4")


def test_tasks_share_no_prefix_but_their_common_system_prompt() -> None:
    one, two = (text(Random(n), f"agent {n}", 1_000, calls=1, answer_tokens=9) for n in (1, 2))
    assert one[:12] != two[:12]
    assert text(Random(1), "agent 1", 1_000, calls=1, answer_tokens=9) == one
    assert 140 <= len(SYSTEM) / TOKEN_CHARACTERS <= 200


def test_the_spawned_flood_has_the_lengths_of_the_flood_and_the_same_tasks_for_every_way() -> None:
    parameters = spawn_flood.Parameters()
    made = [spawn_flood.task(parameters, 301, "batch", 0, n) for n in range(200)]
    lengths = [len(each.text) for each in made]
    assert parameters.characters[0] - 40 <= min(lengths) <= parameters.characters[0] + 400
    assert parameters.characters[1] - 400 <= max(lengths) <= parameters.characters[1]
    assert made == [spawn_flood.task(parameters, 301, "batch", 0, n) for n in range(200)]
    assert spawn_flood.task(parameters, 302, "batch", 0, 0) != made[0]


def test_fanned_out_runs_of_a_number_behave_alike_in_every_repeat() -> None:
    one, two = (fanout.tasks(fanout.Parameters(), name) for name in ("a", "b"))
    assert [directives([each.text]).calls for each in one] == [directives([each.text]).calls for each in two]
    assert {each.text for each in one}.isdisjoint({each.text for each in two})
    tokens = sum(len(each.text) + len(SYSTEM) for each in one) / len(one) / TOKEN_CHARACTERS
    assert 2_750 <= tokens <= 2_950


# ---- figures --------------------------------------------------------------------------------------------------------


def test_only_what_ended_in_the_window_counts() -> None:
    ended = [Ended("a", 1.0, ran(9.0)), Ended("a", 5.0, ran(1.0, cached=50)), Ended("a", 6.0, ran(3.0)), Ended("b", 5.0, ran(7.0))]
    found = figures(ended, "a", 2.0, 32.0)
    assert found == OfCrowd(2, 4.0, 1.0, 3.0, 0.25)
    assert figures(ended, "c", 2.0, 32.0) == OfCrowd(0, 0.0, 0.0, 0.0, 0.0)


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert (percentile([7.0], 0.99), percentile([], 0.5)) == (7.0, 0.0)


def test_growth_compares_the_last_quarter_with_the_second() -> None:
    rising = [Sample(float(at), {"runtime": 100.0 + at, "scheduler": 50.0}) for at in range(101)]
    found = growth(rising, 100.0)
    assert found["scheduler"] == 1.0
    assert found["runtime"] == pytest.approx(187.5 / 137.5)


# ---- what must be reached -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "ours", "router", "expected"),
    [(120.5, 22.9, 21.5, [True, True]), (100.0, 22.9, 21.5, [False, True]), (120.5, 24.0, 21.5, [True, False])],
)
def test_fan_out_must_be_five_times_faster_and_close_to_the_router(
    sequence: float, ours: float, router: float, expected: list[bool]
) -> None:
    took = {fanout.SEQUENCE: sequence, fanout.FAN_OUT: ours, fanout.ROUTER: router}
    samples = [fanout.Sample(way, 0, seconds, [ran()]) for way, seconds in took.items()]
    assert held(fanout.report_of(fanout.Parameters(), samples, 1.0, quick=True)) == expected


@pytest.mark.parametrize(
    ("cached", "rate", "expected"), [(0.446, 10.8, [True, True]), (0.43, 10.8, [False, True]), (0.446, 10.6, [True, False])]
)
def test_routing_must_find_what_cache_aware_finds_and_beat_round_robin(cached: float, rate: float, expected: list[bool]) -> None:
    found = {routing.OURS: of_crowd(rate, cached), routing.AWARE: of_crowd(10.8, 0.446), routing.ROUND: of_crowd(10.0, 0.257)}
    samples = [routing.Sample(way, repeat, each) for way, each in found.items() for repeat in range(2)]
    assert held(routing.report_of(routing.Parameters(), samples, 1.0, quick=True)) == expected


def test_the_spawned_flood_is_judged_against_the_router() -> None:
    rates = {spawn_flood.ROUTER: (3.0, 80.0), "original": (8.0, 80.0), "guard": (5.0, 60.0)}
    cells = [
        spawn_flood.Cell(way, seed, {"interactive": of_crowd(fast), "batch": of_crowd(slow)})
        for way, (fast, slow) in rates.items()
        for seed in (1, 2)
    ]
    report = spawn_flood.report_of(spawn_flood.Parameters(), (1, 2), cells, 1.0, quick=True)
    assert held(report) == [True, True, False, False]
    assert report.bounds[0].value == pytest.approx(8 / 3)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Cells of the spawn flood that would have been measured, each in two minutes."""
    made: list[tuple[str, int]] = []

    def measured(parameters: spawn_flood.Parameters, way: str, seed: int) -> spawn_flood.Cell:
        made.append((way, seed))
        return spawn_flood.Cell(way, seed, {crowd: of_crowd(parameters.speed) for crowd in spawn_flood.CROWDS}, seconds=120.0, busy=0.5)

    monkeypatch.setattr(spawn_flood, "_played", measured)
    monkeypatch.setattr(spawn_flood, "time", SimpleNamespace(monotonic=lambda: 120.0 * len(made)))
    return made


def play(path: Path, *, speed: float = 2.0, seeds: tuple[int, ...] = (1,), minutes: float = float("inf")) -> list[spawn_flood.Cell]:
    parameters = spawn_flood.Parameters(speed=speed)
    return spawn_flood._play(parameters, seeds, spawn_flood.Kept(path, parameters), minutes=minutes)


def test_a_cell_that_was_measured_with_these_parameters_is_not_measured_again(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    kept = tmp_path / "deeper" / "cells.jsonl"
    first = play(kept)
    with kept.open("a") as file:
        file.write('{"way": "guard", "se')  # as a kill leaves it
    assert play(kept) == first
    assert len(played) == len(spawn_flood.WAYS)
    again = play(kept, speed=3.0, seeds=(1, 2))
    assert len(played) == 3 * len(spawn_flood.WAYS)
    assert {cell.found["batch"].runs_per_minute for cell in again} == {3.0}
    assert json.loads(kept.read_text().splitlines()[0])["parameters"]["speed"] == 2.0


def test_parts_are_measured_within_their_minutes_and_the_rest_later(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    kept = tmp_path / "cells.jsonl"
    with pytest.raises(LuftpauseError, match=r"2 of 3 cells are measured and kept in .*cells.jsonl; the same command goes on"):
        play(kept, minutes=5.0)
    assert len(played) == 2
    assert [cell.way for cell in play(kept, minutes=3.0)] == list(spawn_flood.WAYS)
    assert len(played) == 3


def test_cells_of_a_report_are_taken_over_if_they_have_these_parameters(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    parameters, report = spawn_flood.Parameters(speed=1.0), tmp_path / "report.json"
    cells = play(tmp_path / "one.jsonl", speed=1.0)
    report.write_text(as_json(spawn_flood.report_of(parameters, (1,), cells, 360.0, quick=False)))
    for source in (report, tmp_path / "one.jsonl"):
        kept = spawn_flood.Kept(tmp_path / f"from-{source.name}", parameters)
        kept.merge(source)
        assert [each.found for each in spawn_flood._play(parameters, (1,), kept)] == [each.found for each in cells]
        kept.merge(source)  # as the same command does when it goes on
        assert len(kept.path.read_text().splitlines()) == 3
    assert len(played) == len(spawn_flood.WAYS)
    other = spawn_flood.Kept(tmp_path / "other.jsonl", spawn_flood.Parameters(speed=2.0))
    with pytest.raises(LuftpauseError, match="none of the 3 cells in it has these parameters; compare --speed"):
        other.merge(report)
    with pytest.raises(LuftpauseError, match="No such file"):
        other.merge(tmp_path / "nowhere.json")


def test_a_decision_may_add_a_millisecond_and_must_not_wait_for_turns() -> None:
    alone = decide.Sample(decide.APART, decide.ALONE, [0.005] * 100, [0.0058] * 100, 0)
    waits = decide.Sample(decide.APART, decide.BUSY, [0.005] * 100, [0.0058] * 90 + [0.2] * 10, 50)
    assert decide.added(alone, 0.5) == pytest.approx(0.8)
    assert held(decide.report_of(decide.Parameters(), [alone, waits], 1.0, quick=True)) == [True, False]
    fine = decide.Sample(decide.APART, decide.BUSY, [0.005] * 100, [0.009] * 100, 50)
    assert held(decide.report_of(decide.Parameters(), [alone, fine], 1.0, quick=True)) == [True, True]


def test_what_asking_first_adds_is_the_difference_of_the_medians_and_bounded() -> None:
    near = quota_latency.Sample(quota_latency.APART, quota_latency.ASKED, [0.001] * 100, [0.0028] * 100)
    far = quota_latency.Sample(quota_latency.TOGETHER, quota_latency.PROXIED, [0.001] * 100, [0.0031] * 60 + [0.001] * 40)
    assert quota_latency.added(near, 0.5) == pytest.approx(1.8)
    assert held(quota_latency.report_of(quota_latency.Parameters(), [near, far], 1.0, quick=True)) == [True, False]


def test_scale_judges_each_part_that_was_measured() -> None:
    steady = Steady(600.0, 60.0, 5, {"runtime": 1.1}, {"runtime": 100.0}, {"runtime": 0.2}, [Sample(0.0, {"runtime": 100.0})])
    found = scale.Found(
        AtOnce(1_000, 9.0, 99.0, 2_000, 30.0, 0.06, 200.0, 0), Taken(5_000, {"dataplane": 9e3, "scheduler": 4e3}, 5_000, 9.0), None, steady
    )
    report = scale.report_of(scale.Parameters(), found, 1.0, quick=False, judges_growth=True)
    assert held(report) == [True, True, False, True, False]
    assert held(scale.report_of(scale.Parameters(), scale.Found(steady=steady), 1.0, quick=True, judges_growth=False)) == []
    assert [table.title.split(",")[0] for table in report.tables] == ["sub-agents in one runtime", "memory", "600 s of work"]


# ---- processes ------------------------------------------------------------------------------------------------------


async def test_a_program_that_ended_is_told_with_its_last_words(tmp_path: Path) -> None:
    words = (sys.executable, "-c", "import sys; sys.exit('no port is free')")
    program = await Program.start("router", words, tmp_path / "log")
    assert await program.ended() == 1
    with pytest.raises(LuftpauseError, match="router ended with 1:\nno port is free") as told:
        await program.ready("http://127.0.0.1:9/")
    assert told.value.code == "program_ended"
    await program.stop()


async def test_who_never_answers_is_told_with_what_was_waited_for() -> None:
    with pytest.raises(LuftpauseError, match=r"nobody is there \(waited 0 s for http://127.0.0.1:9/ready\)") as told:
        await wait_until("http://127.0.0.1:9/ready", 0.3, what="nobody is there")
    assert told.value.code == "not_ready"


async def test_a_program_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    waits = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    inner = f"import subprocess, sys; p = subprocess.Popen({waits}); print(p.pid, flush=True); p.wait()"
    program = await Program.start("shell", (sys.executable, "-c", inner), tmp_path / "log")
    async with asyncio.timeout(60):
        while not program.said():
            await asyncio.sleep(0.01)  # the log is a file
    child = int(program.said())
    assert family(program.pid) == [program.pid, child]
    assert cpu_seconds(program.pid) > 0
    assert memory_bytes(program.pid) > 1_000_000
    await program.stop()
    assert family(program.pid) == [program.pid]
    assert (cpu_seconds(program.pid), memory_bytes(program.pid)) == (0.0, 0)


def test_a_missing_router_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(routers.VARIABLE, raising=False)
    with pytest.raises(LuftpauseError, match="pip install sglang-router, or name it in LUFTPAUSE_BENCH_SGLANG_ROUTER"):
        routers.sglang_router()
    monkeypatch.setenv(routers.VARIABLE, "/opt/router")
    assert routers.sglang_router() == "/opt/router"


def test_the_watch_counts_what_it_watches() -> None:
    watch = Watch()
    timed = watch._timed(lambda number: sum(range(number)))
    assert timed(300_000) == sum(range(300_000))
    found = watch.figures()
    assert found["appends"] == 1
    assert 0 < found["append_seconds"] <= found["process_seconds"]
    assert found["writer_seconds"] == 0


@pytest.mark.parametrize("bench", [fanout, routing, spawn_flood, decide, llama_guard, scale])
def test_each_has_the_common_options(bench: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--help"])
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out


def test_quick_is_less_of_everything() -> None:
    options = argparse.Namespace(quick=True, seeds=None, speed=None, repeats=None, policy="")
    parameters, seeds = spawn_flood._parameters(options)
    assert len(seeds) == 1
    assert 3 * (parameters.warm_up_seconds + parameters.window_seconds) / parameters.speed < 45
    quick = routing._parameters(options)
    assert 3 * quick.repeats * (quick.warm_up_seconds + quick.window_seconds) < 50


def test_what_can_not_be_run_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def without_router(world: object) -> float:
        raise LuftpauseError("sglang-router is not here: pip install it", code="missing_program")

    monkeypatch.setattr(fanout, "run", without_router)
    assert registry.run("fanout", ["--quick", "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "luftpause bench fanout: sglang-router is not here: pip install it\n"
