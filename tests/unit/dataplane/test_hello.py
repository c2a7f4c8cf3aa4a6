"""Is a Hello a true picture of the memory, in parts that are small enough?"""

from luftpause.dataplane.hello import PART_BYTES, PART_BYTES_MAX, Snapshot
from luftpause.dataplane.memory import Memory
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.support.waiters import an_ask


def a_memory(runs: int = 0, ids_per_run: int = 0) -> Memory:
    memory = Memory(seconds=1800, runs_max=100_000)
    for number in range(runs):
        memory.placed(0.0, an_ask(f"turn_{number}", head_digest=b"d" * 16), attempt=1, run=f"run_{number}", replica="a", turn_seq=1)
        memory.tool_calls_seen(0.0, f"turn_{number}", [f"call_{number}_{each:024}" for each in range(ids_per_run)])
    return memory


def test_an_empty_memory_has_no_parts() -> None:
    assert list(Snapshot(a_memory(), 0.0).parts()) == []


def test_everything_arrives_once_and_no_part_is_longer_than_256_kib() -> None:
    memory = a_memory(runs=1_500, ids_per_run=20)
    parts = list(Snapshot(memory, 10.0).parts())
    assert len(parts) > 5
    assert max(part.ByteSize() for part in parts) <= PART_BYTES
    assert min(part.ByteSize() for part in parts[:-1]) > PART_BYTES * 0.9  # well filled
    assert sorted(run.run for part in parts for run in part.runs) == sorted(memory.runs)
    assert sorted(turn.turn for part in parts for turn in part.turns) == sorted(memory.in_flight)
    assert all(len(run.tool_calls) == 20 for part in parts for run in part.runs)


def test_a_record_too_long_for_a_part_loses_its_oldest_ids() -> None:
    memory = Memory(seconds=1800, runs_max=10)
    memory.placed(0.0, an_ask("t", head_digest=b"d"), attempt=1, run="r", replica="a", turn_seq=1)
    memory.tool_calls_seen(0.0, "t", [f"{number:0400}" for number in range(256)])
    (part,) = Snapshot(memory, 0.0, part_bytes_max=30_000).parts()
    assert part.ByteSize() <= 30_000
    kept = [each.id for each in part.runs[0].tool_calls]
    assert kept[-1] == f"{255:0400}"
    assert 40 < len(kept) < 75


def test_a_run_longer_than_the_usual_part_travels_alone() -> None:
    memory = Memory(seconds=1800, runs_max=10)
    for run in ("small", "large"):
        memory.placed(0.0, an_ask(run), attempt=1, run=run, replica="a", turn_seq=1)
        memory.finished(0.0, run, paused=False)
    memory.placed(0.0, an_ask("t"), attempt=1, run="large", replica="a", turn_seq=1)
    memory.tool_calls_seen(0.0, "t", [f"{number:0500}" for number in range(256)])
    memory.finished(0.0, "t", paused=False)
    parts = list(Snapshot(memory, 0.0).parts())
    assert sorted([run.run for run in part.runs] for part in parts) == [["large"], ["small"]]
    assert PART_BYTES < max(part.ByteSize() for part in parts) <= PART_BYTES_MAX


def test_durations_travel_as_ages() -> None:
    memory = Memory(seconds=1800, runs_max=10)
    memory.placed(100.0, an_ask("t1", principal="p", head_digest=b"d"), attempt=2, run="r", replica="a", turn_seq=3)
    memory.response_seen(101.0, "t1", "resp")
    memory.finished(102.5, "t1", paused=True, tool_call_ids=("c1",))
    memory.placed(103.0, an_ask("t2", principal="p", head_digest=b"d", tool_call_ids=("c0",)), attempt=1, run="r", replica="b", turn_seq=4)
    memory.first_token("t2")
    (part,) = Snapshot(memory, 110.0).parts()
    assert part == pb.HelloPart(
        runs=[
            pb.RunRecord(
                run="r",
                turn_class=pb.TURN_CLASS_INTERACTIVE,
                turn_seq=4,
                age_ms=7_000,
                placed_age_ms=7_000,
                lanes=[
                    pb.LaneRecord(
                        model="m", home="b", turn_seq=4, idle_age_ms=7_500, paused=[pb.PausedBranch(tool_call_ids=["c1"], age_ms=7_500)]
                    )
                ],
                tool_calls=[
                    pb.ToolCallRecord(id="c1", age_ms=7_500, head_digest=b"d"),
                    pb.ToolCallRecord(id="c0", age_ms=7_000, head_digest=b"d"),
                ],
                principal="p",
                responses=[pb.ResponseRecord(id="resp", replica="a", age_ms=9_000)],
            )
        ],
        turns=[
            pb.TurnRecord(
                turn="t2",
                attempt=1,
                run="r",
                model="m",
                replica="b",
                turn_seq=4,
                kind=pb.KIND_GENERATIVE,
                turn_class=pb.TURN_CLASS_INTERACTIVE,
                age_ms=7_000,
                first_token=True,
                principal="p",
                head_digest=b"d",
            )
        ],
    )


def test_ids_older_than_the_memory_are_left_out() -> None:
    memory = Memory(seconds=100, runs_max=10)
    memory.placed(0.0, an_ask("t1", tool_call_ids=("old",)), attempt=1, run="r", replica="a", turn_seq=1)
    memory.tool_calls_seen(90.0, "t1", ["new"])
    (part,) = Snapshot(memory, 110.0).parts()
    assert [each.id for each in part.runs[0].tool_calls] == ["new"]


def test_what_changes_while_the_parts_are_written_is_written_as_it_was() -> None:
    memory = a_memory(runs=300, ids_per_run=2)
    snapshot = Snapshot(memory, 0.0, part_bytes=2_000)
    parts = snapshot.parts()
    first = next(parts)
    for number in range(300):  # facts go on meanwhile
        memory.finished(1.0, f"turn_{number}", paused=True, tool_call_ids=("later",))
    memory.end_run("run_7")
    rest = [first, *parts]
    snapshot.close()
    runs = [run for part in rest for run in part.runs]
    assert sorted(run.run for run in runs) == sorted(f"run_{number}" for number in range(300))
    assert not any(lane.paused for run in runs for lane in run.lanes)
    assert sum(len(part.turns) for part in rest) == 300
    assert memory.watcher is None
