"""What does the dataplane remember of runs, and for how long?"""

from luftpause.dataplane.memory import TOOL_CALLS_MAX, Branch, Memory
from luftpause.dataplane.turns import Kind, TurnClass
from tests.support.waiters import an_ask


def a_memory(*, seconds: float = 1800, runs_max: int = 1000) -> Memory:
    return Memory(seconds=seconds, runs_max=runs_max)


def place(memory: Memory, turn: str, *, now: float = 0.0, run: str = "r", replica: str = "a", turn_seq: int = 1, **more: object) -> None:
    memory.placed(now, an_ask(turn, **more), attempt=1, run=run, replica=replica, turn_seq=turn_seq)  # pyright: ignore[reportArgumentType]


def test_the_replica_of_the_newest_turn_is_the_home_of_its_lane() -> None:
    memory = a_memory()
    place(memory, "t1", replica="a", turn_seq=1)
    place(memory, "t2", replica="b", turn_seq=2, model="other")
    place(memory, "t3", replica="c", turn_seq=3)
    lanes = memory.runs["r"].lanes
    assert {model: (lane.home, lane.turn_seq) for model, lane in lanes.items()} == {"m": ("c", 3), "other": ("b", 2)}


def test_an_answer_with_tool_calls_pauses_its_lane_until_a_turn_carries_one_of_its_ids() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.tool_calls_seen(1.0, "t1", ["c1", "c2"])
    memory.finished(2.0, "t1", paused=True, tool_call_ids=("c1", "c2"))
    assert memory.runs["r"].lanes["m"].paused == (Branch(("c1", "c2"), 2.0),)
    place(memory, "t2", tool_call_ids=("other",), turn_seq=2)
    assert len(memory.runs["r"].lanes["m"].paused) == 1
    place(memory, "t3", tool_call_ids=("c2",), turn_seq=3)
    assert memory.runs["r"].lanes["m"].paused == ()


def test_a_turn_with_another_model_can_follow_a_paused_branch() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
    place(memory, "t2", model="other", tool_call_ids=("c1",), turn_seq=2)
    assert memory.runs["r"].lanes["m"].paused == ()


def test_parallel_branches_count_once_each() -> None:
    memory = a_memory()
    for seq, turn in enumerate(("t1", "t2"), 1):
        place(memory, turn, turn_seq=seq)
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
    memory.finished(2.0, "t2", paused=True, tool_call_ids=("c2",))
    place(memory, "t3", tool_call_ids=("c1",), turn_seq=3)
    assert memory.runs["r"].lanes["m"].paused == (Branch(("c2",), 2.0),)


def test_what_was_followed_through_another_dataplane_is_paused_no_more() -> None:
    memory = a_memory()
    place(memory, "t1", head_digest=b"one")
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1", "c2"))
    place(memory, "t2", turn_seq=2, head_digest=b"another")
    memory.finished(2.0, "t2", paused=True, tool_call_ids=("c3",))
    memory.followed_elsewhere("r", "", "other", ("c1",))
    memory.followed_elsewhere("unknown", "", "m", ("c1",))
    assert len(memory.runs["r"].lanes["m"].paused) == 2
    memory.followed_elsewhere("r", "", "m", ("c2",))
    assert [branch.ids for branch in memory.runs["r"].lanes["m"].paused] == [("c3",)]


def test_only_answers_without_ids_are_followed_elsewhere_without_ids() -> None:
    memory = a_memory()
    place(memory, "t1", head_digest=b"one")
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
    place(memory, "t2", turn_seq=2, head_digest=b"two")
    memory.finished(2.0, "t2", paused=True)
    memory.followed_elsewhere("r", "", "m", ())
    assert [branch.ids for branch in memory.runs["r"].lanes["m"].paused] == [("c1",)]


def test_a_turn_that_is_placed_elsewhere_or_nowhere_ends_no_pause() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
    place(memory, "t3", tool_call_ids=("c2",), turn_seq=3)  # t2 was given up before it reached its place
    assert [branch.ids for branch in memory.runs["r"].lanes["m"].paused] == [("c1",)]


def test_a_paused_answer_without_ids_is_followed_by_the_next_turn_of_its_lane_only() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.finished(1.0, "t1", paused=True)
    place(memory, "t2", model="other", turn_seq=2)
    assert memory.runs["r"].lanes["m"].paused == (Branch((), 1.0),)
    place(memory, "t3", turn_seq=3)
    assert memory.runs["r"].lanes["m"].paused == ()


def test_a_new_message_instead_of_tool_results_ends_the_pause_of_its_own_conversation_only() -> None:
    memory = a_memory()
    place(memory, "t1", head_digest=b"mine")
    memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
    place(memory, "sub-agent", head_digest=b"another", turn_seq=2)
    assert memory.runs["r"].lanes["m"].paused == (Branch(("c1",), 1.0, b"mine"),)
    place(memory, "t2", head_digest=b"mine", turn_seq=3)
    assert memory.runs["r"].lanes["m"].paused == ()


def test_run_ids_are_scoped_by_principal() -> None:
    memory = a_memory()
    for principal in ("", "p", "q"):
        place(memory, f"t{principal}", principal=principal)
    assert [(run.id, run.principal) for run in memory.runs.values()] == [("r", ""), ("r", "p"), ("r", "q")]
    memory.end_run("r", "p")
    assert [run.principal for run in memory.runs.values()] == ["", "q"]


def test_a_failed_turn_leaves_its_run_idle() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.tool_calls_seen(1.0, "t1", ["c1"])
    memory.failed(2.0, "t1")
    assert memory.in_flight == {}
    assert memory.runs["r"].in_flight == 0
    assert memory.runs["r"].lanes["m"].paused == ()
    assert memory.runs["r"].lanes["m"].home == "a"


def test_a_turn_given_back_leaves_the_home_where_it_was() -> None:
    memory = a_memory()
    place(memory, "t1", replica="a", turn_seq=1)
    memory.finished(1.0, "t1", paused=False)
    place(memory, "t2", replica="b", turn_seq=2)
    memory.withdrawn(2.0, "t2")
    assert memory.runs["r"].lanes["m"].home == "a"


def test_a_turn_given_back_leaves_its_run_paused_as_it_was_but_not_if_its_client_has_left() -> None:
    for held_again in (True, False):
        memory = a_memory()
        place(memory, "t1", replica="a", turn_seq=1)
        memory.finished(1.0, "t1", paused=True, tool_call_ids=("c1",))
        place(memory, "t2", replica="a", turn_seq=2, tool_call_ids=("c1",))
        assert memory.runs["r"].lanes["m"].paused == ()
        memory.withdrawn(2.0, "t2", held_again=held_again)
        assert memory.runs["r"].lanes["m"].paused == ((Branch(("c1",), 1.0),) if held_again else ())


def test_a_first_turn_given_back_leaves_no_lane() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.withdrawn(1.0, "t1")
    assert memory.runs["r"].lanes == {}
    assert memory.runs["r"].in_flight == 0


def test_ids_are_kept_with_the_digest_of_their_head_newest_last() -> None:
    memory = a_memory()
    place(memory, "t1", tool_call_ids=("new", "old"), head_digest=b"d")
    memory.tool_calls_seen(1.0, "t1", ["newer"])
    assert list(memory.runs["r"].tool_calls.items()) == [("old", (b"d", 0.0)), ("new", (b"d", 0.0)), ("newer", (b"d", 1.0))]


def test_only_the_newest_ids_of_a_run_are_kept() -> None:
    memory = a_memory()
    place(memory, "t1")
    memory.tool_calls_seen(1.0, "t1", [f"c{number}" for number in range(TOOL_CALLS_MAX + 44)])
    kept = list(memory.runs["r"].tool_calls)
    assert (len(kept), kept[0], kept[-1]) == (TOOL_CALLS_MAX, "c44", f"c{TOOL_CALLS_MAX + 43}")


def test_a_response_is_remembered_with_its_replica() -> None:
    memory = a_memory()
    place(memory, "t1", replica="b")
    memory.response_seen(3.0, "t1", "resp_1")
    assert memory.runs["r"].responses == {"resp_1": ("b", 3.0)}


def test_class_and_caller_are_those_of_the_newest_turn_and_a_parent_stays() -> None:
    memory = a_memory()
    memory.placed(0.0, an_ask("t1", parent="p"), attempt=1, run="r", replica="a", turn_seq=1)
    memory.placed(1.0, an_ask("t2", turn_class=TurnClass.BATCH), attempt=1, run="r", replica="a", turn_seq=2)
    run = memory.runs["r"]
    assert (run.turn_class, run.parent, run.turn_seq) == (TurnClass.BATCH, "p", 2)


def test_a_classifier_turn_has_no_run_state() -> None:
    memory = a_memory()
    place(memory, "t1", kind=Kind.CLASSIFIER)
    assert (list(memory.runs), list(memory.in_flight)) == ([], ["t1"])
    memory.finished(1.0, "t1", paused=False)
    assert memory.in_flight == {}


def test_a_run_is_dropped_when_it_was_idle_too_long_but_not_while_a_turn_runs() -> None:
    memory = a_memory(seconds=100)
    place(memory, "idle", run="idle", now=0.0)
    memory.finished(1.0, "idle", paused=False)
    place(memory, "busy", run="busy", now=0.0)
    place(memory, "fresh", run="fresh", now=90.0)
    memory.sweep(100.5)
    assert set(memory.runs) == {"idle", "busy", "fresh"}
    memory.sweep(101.0)
    assert set(memory.runs) == {"busy", "fresh"}
    memory.finished(150.0, "busy", paused=False)
    memory.sweep(251.0)
    assert set(memory.runs) == {"fresh"}  # its turn never ended


def test_beyond_the_limit_the_longest_unseen_run_goes() -> None:
    memory = a_memory(runs_max=2)
    for number, run in enumerate(("one", "two", "one", "three")):
        place(memory, f"t{number}", run=run, now=float(number))
    assert list(memory.runs) == ["one", "three"]


def test_an_ended_run_is_forgotten_and_its_last_turn_does_not_disturb_a_new_one_of_that_name() -> None:
    memory = a_memory()
    place(memory, "old")
    memory.end_run("r")
    assert (list(memory.runs), list(memory.in_flight)) == ([], ["old"])
    place(memory, "new")
    memory.finished(1.0, "old", paused=True, tool_call_ids=("c1",))
    run = memory.runs["r"]
    assert (run.in_flight, run.lanes["m"].paused, run.tool_calls) == (1, (), {})


def test_unknown_turns_change_nothing() -> None:
    memory = a_memory()
    memory.first_token("x")
    memory.tool_calls_seen(0.0, "x", ["c"])
    memory.response_seen(0.0, "x", "r")
    memory.finished(0.0, "x", paused=True)
    memory.failed(0.0, "x")
    memory.withdrawn(0.0, "x")
    memory.end_run("x")
    assert (list(memory.runs), memory.in_flight) == ([], {})
