"""Do the benchmarks with real processes measure what they say, on a small scale?"""

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause_bench import decide, quota_latency, spawn_flood
from luftpause_bench.live.crowds import Task, all_at_once, one_after_the_other
from luftpause_bench.live.world import World, run
from luftpause_bench.scale import at_once, held_turns, steady_work

pytestmark = pytest.mark.timeout(300)


def test_sub_agents_flood_a_whole_luftpause_in_the_testbeds_time() -> None:
    parameters = spawn_flood.Parameters(batch=4, interactive=2, speed=20.0, warm_up_seconds=0.0, window_seconds=200.0)
    found = run(lambda world: spawn_flood.measure(world, parameters, "guard", 1))
    for crowd in spawn_flood.CROWDS:
        assert found[crowd].runs > 0
        assert found[crowd].runs_per_minute == pytest.approx(found[crowd].runs * 60 / 200)
        assert found[crowd].run_seconds_p50 >= parameters.calls * parameters.lookup_seconds
        assert 0.5 < found[crowd].cached_share < 1.0


@pytest.mark.bench
def test_every_turn_is_held_counted_in_memory_and_answered_in_the_end() -> None:
    taken = run(lambda world: held_turns.held(world, 150))
    assert (taken.count, taken.answered) == (150, 150)
    assert 2_000 < taken.bytes_each["dataplane"] < 100_000, "a turn's body alone has 2,000 bytes"
    assert set(taken.bytes_each) == {"dataplane", "scheduler"}


@pytest.mark.bench
def test_sub_agents_at_once_have_their_journal_timed() -> None:
    found = run(lambda world: at_once.measure(world, 12))
    assert (found.agents, found.tool_calls, found.failed_tool_calls) == (12, 24, 0)
    assert 0 < found.journal_share < 1
    assert found.run_seconds_sum > found.seconds


@pytest.mark.bench
def test_open_streams_are_counted_and_left() -> None:
    taken = run(lambda world: held_turns.streams(world, 100))
    assert taken.count == 100
    assert taken.bytes_each["dataplane"] < 100_000


@pytest.mark.bench
def test_decisions_are_timed_both_ways_alone_and_beside_agents() -> None:
    samples = run(lambda world: decide.measure(world, decide.Parameters(decisions=200, agents=8, context_chars=800)))
    assert [each.way for each in samples] == [decide.APART, decide.APART, decide.TOGETHER, decide.TOGETHER]
    for alone, busy in (samples[:2], samples[2:]):
        assert (alone.turns, len(alone.straight), len(alone.through)) == (0, 200, 200)
        assert busy.turns > 0
        assert min(alone.straight) > 0.004, "the classifier takes 4 ms"


@pytest.mark.bench
def test_calls_that_ask_first_are_timed_both_ways() -> None:
    samples = run(lambda world: quota_latency.measure(world, quota_latency.Parameters(calls=20)))
    ways = (quota_latency.PROXIED, quota_latency.RESERVED, quota_latency.ASKED)
    assert [(each.plane, each.way) for each in samples] == [
        (plane, way) for plane in (quota_latency.APART, quota_latency.TOGETHER) for way in ways
    ]
    for _, reserved, asked in (samples[:3], samples[3:]):
        assert all(before < after for before, after in zip(reserved.through, asked.through, strict=True))
    assert all(len(each.straight) == len(each.through) == 20 for each in samples)
    assert all(sum(each.through) > sum(each.straight) for each in samples)


@pytest.mark.bench
def test_memory_is_watched_while_work_goes_on() -> None:
    found = run(lambda world: steady_work.measure(world, 9.0, 3.0))
    assert found.runs > 0
    assert set(found.growth) == {"scheduler", "dataplane", "runtime"}
    assert all(0.5 < each < 2.0 for each in found.growth.values())
    assert all(share > 0 for share in found.cpu_share.values())


async def _two_ways(world: World) -> tuple[float, float]:
    engines = await world.engines(1, "--speed", "20")
    tools = await world.tools("--lookup-seconds", "0.5")
    plane = await world.luftpause(engines)
    mcp, _ = await world.runtime(plane.http, tools)
    tasks = [Task(f"Task {number} [calls=1 tool=lookup answer=4]") for number in range(6)]
    together, runs = await all_at_once(mcp, tasks)
    sequence, more = await one_after_the_other(mcp, tasks)
    assert [each.tool_calls for each in (*runs, *more)] == [1] * 12
    with pytest.raises(LuftpauseError, match="a sub-agent ended as Failed"):
        await all_at_once(mcp, [Task("This one [nonsense=1 calls=1]: [calls=many]")])
    return together, sequence


@pytest.mark.bench
def test_fanned_out_runs_take_the_time_of_one_and_a_failed_run_ends_the_measurement() -> None:
    together, sequence = run(_two_ways)
    assert sequence > 6 * 0.5 > together
