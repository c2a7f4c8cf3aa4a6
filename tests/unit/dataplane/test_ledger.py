"""Does each turn hear exactly one word per attempt, and does no place stay counted, whatever races?"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from gc import collect
from itertools import count, islice
from sys import getallocatedblocks

import pytest

from luftpause.dataplane import wire
from luftpause.dataplane.ended import ENDED_RUNS_MAX
from luftpause.dataplane.hello import Snapshot
from luftpause.dataplane.ledger import PARKED_SECONDS_MAX, Ledger
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.orders import absorb
from luftpause.dataplane.seeking import SEEKERS_MAX
from luftpause.dataplane.turns import Kind, Lease, Placement, Refusal, ReturnReason, Usage
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.support.scheduler_double import a_list_of
from tests.support.waiters import Recorder, an_ask


@dataclass
class Desk:
    """A ledger, what it sent, and the time."""

    now: float = 0.0
    sent: list[pb.Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        memory = Memory(seconds=1800, runs_max=1000)
        self.ledger = Ledger(
            memory, lambda: self.now, words=wire, send=self.sent.append, send_soon=self.sent.append, environ={"KEY": "secret"}
        )

    def connect(self, *replicas: str) -> None:
        self.ledger.opening()
        self.ledger.opened()
        absorb(self.ledger, a_list_of(*replicas))

    def asked(self, turn: str = "t", **more: object) -> Recorder:
        waiter = Recorder()
        self.ledger.ask(an_ask(turn, **more), waiter)  # pyright: ignore[reportArgumentType]
        return waiter

    def place(self, turn: str = "t", replica: str = "a", *, attempt: int = 1, run: str = "r") -> None:
        absorb(self.ledger, pb.Order(placed=pb.Placed(turn=turn, attempt=attempt, run=run, replica=replica, turn_seq=1)))

    def refuse(self, turn: str = "t", *, attempt: int = 1, retry_after_ms: int = 0) -> None:
        order = pb.Refused(turn=turn, attempt=attempt, run="r", status=404, code="c", message="m", retry_after_ms=retry_after_ms)
        absorb(self.ledger, pb.Order(refused=order))

    def take(self) -> list[str]:
        """What was sent since the last call: kind and attempt."""
        said = [
            f"{fact.WhichOneof('fact')} {getattr(getattr(fact, str(fact.WhichOneof('fact'))), 'attempt', '')}".strip() for fact in self.sent
        ]
        self.sent.clear()
        return said


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.connect("a", "b")
    return desk


def test_a_held_turn_is_told_why_and_then_where(desk: Desk) -> None:
    waiter = desk.asked()
    absorb(desk.ledger, pb.Order(held=pb.Held(turn="t", attempt=1, run="r", reason="capped")))
    desk.place()
    assert waiter.told[0] == ("r", "capped")
    placement = waiter.told[1]
    assert isinstance(placement, Placement)
    assert (placement.replica.name, placement.run, placement.attempt) == ("a", "r", 1)


@pytest.mark.parametrize("priority", [-1, 0, 1, None])
def test_what_the_request_says_to_its_engine_comes_with_the_place_also_where_that_had_to_wait(desk: Desk, priority: int | None) -> None:
    at_once, parked = desk.asked("t"), desk.asked("u")
    for turn, name in (("t", "a"), ("u", "new")):
        absorb(desk.ledger, pb.Order(placed=pb.Placed(turn=turn, attempt=1, run="r", replica=name, turn_seq=1, priority=priority)))
    assert parked.told == []
    absorb(desk.ledger, a_list_of("a", "b", "new"))
    placements = [waiter.told[0] for waiter in (at_once, parked)]
    assert [each.priority for each in placements if isinstance(each, Placement)] == [priority, priority]


def test_a_refusal_ends_the_turn_and_rounds_its_delay_up(desk: Desk) -> None:
    waiter = desk.asked()
    desk.refuse(retry_after_ms=1_001)
    assert waiter.told == [Refusal("r", 404, "c", "m", 2)]
    desk.place()
    assert len(waiter.told) == 1


def test_a_place_for_a_turn_abandoned_meanwhile_is_given_back(desk: Desk) -> None:
    waiter = desk.asked()
    desk.ledger.abandon("t")
    desk.place()
    assert desk.take() == ["turn_requested 1", "turn_abandoned 1", "turn_abandoned 1"]
    assert waiter.told == []
    assert desk.ledger.memory.in_flight == {}


def test_a_turn_abandoned_after_it_was_placed_frees_its_place(desk: Desk) -> None:
    desk.asked()
    desk.place()
    desk.ledger.abandon("t")
    assert desk.take() == ["turn_requested 1", "turn_abandoned 1"]
    assert desk.ledger.memory.in_flight == {}


def test_a_turn_abandoned_after_it_was_started_is_reported_failed(desk: Desk) -> None:
    desk.asked()
    desk.place()
    desk.ledger.started("t")
    desk.ledger.abandon("t")
    assert desk.take() == ["turn_requested 1", "turn_started 1", "turn_failed 1"]


def test_a_start_is_told_if_nothing_else_tells_it_before(desk: Desk) -> None:
    ends = {
        "first": lambda: desk.ledger.first_token("first"),
        "calls": lambda: desk.ledger.tool_calls_seen("calls", ["call_1"]),
        "stored": lambda: desk.ledger.response_seen("stored", "resp_1"),
        "done": lambda: desk.ledger.finished("done", "stop", None, paused=False),
        "back": lambda: desk.ledger.give_back("back", ReturnReason.BUSY),
    }
    for turn in (*ends, "slow"):
        desk.asked(turn)
        desk.place(turn)
        desk.ledger.started(turn)
    desk.take()
    for end in ends.values():
        end()
    desk.take()
    desk.ledger.tick()
    assert [fact.turn_started.turn for fact in desk.sent] == ["slow"]
    desk.ledger.tick()
    assert desk.take() == ["turn_started 1"]


def test_a_start_that_fell_into_an_outage_is_in_the_memory(desk: Desk) -> None:
    desk.asked()
    desk.place()
    desk.ledger.closed()
    desk.ledger.started("t")
    desk.connect("a", "b")
    desk.take()
    desk.ledger.tick()
    assert desk.take() == []
    assert "t" in desk.ledger.memory.in_flight


def test_a_turn_failed_while_it_was_held_is_abandoned(desk: Desk) -> None:
    desk.asked()
    desk.ledger.failed("t", "stopped")
    assert desk.take() == ["turn_requested 1", "turn_abandoned 1"]


def test_a_turn_ends_once(desk: Desk) -> None:
    desk.asked()
    desk.place()
    desk.ledger.finished("t", "stop", None, paused=False)
    desk.ledger.finished("t", "stop", None, paused=False)
    desk.ledger.failed("t", "client_left")
    desk.ledger.abandon("t")
    desk.ledger.started("t")
    desk.ledger.first_token("t")
    assert desk.take() == ["turn_requested 1", "turn_finished 1"]


def test_a_place_told_twice_is_told_to_the_waiter_once(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place()
    desk.place()
    desk.refuse()
    assert len(waiter.told) == 1
    assert desk.take() == ["turn_requested 1"]
    assert desk.ledger.counts["stale_attempt"] == 2


def test_giving_back_opens_the_next_attempt_and_its_old_orders_are_dropped(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place()
    desk.ledger.started("t")
    desk.ledger.tick()
    desk.ledger.give_back("t", ReturnReason.UNREACHABLE)
    desk.place(attempt=1)
    assert len(waiter.final) == 1
    desk.place(replica="b", attempt=2)
    assert [word.replica.name for word in waiter.final if isinstance(word, Placement)] == ["a", "b"]
    desk.ledger.started("t")
    desk.ledger.tick()
    desk.ledger.finished("t", "stop", None, paused=False)
    assert desk.take() == ["turn_requested 1", "turn_started 1", "turn_returned 1", "turn_started 2", "turn_finished 2"]


def test_giving_back_a_turn_that_has_no_place_changes_nothing(desk: Desk) -> None:
    desk.asked()
    desk.ledger.give_back("t", ReturnReason.BUSY)
    desk.ledger.give_back("nobody", ReturnReason.BUSY)
    assert desk.take() == ["turn_requested 1"]


def test_while_disconnected_nothing_is_sent_and_held_turns_are_asked_again_with_their_attempt_and_age(desk: Desk) -> None:
    for turn in ("done", "gone", "back", "busy", "held", "left"):
        desk.asked(turn)
    for turn in ("done", "gone", "back", "busy"):
        desk.place(turn)
    desk.take()
    desk.ledger.closed()
    desk.now = 5.0
    desk.ledger.finished("done", "stop", None, paused=False)
    desk.ledger.failed("gone", "engine_died")
    desk.ledger.give_back("back", ReturnReason.UNREACHABLE)
    desk.ledger.give_back("busy", ReturnReason.BUSY)
    desk.ledger.abandon("left")
    desk.asked("new")
    assert desk.take() == []
    assert desk.ledger.memory.in_flight == {}
    desk.connect("a")
    asked = {each.turn: each for each in (fact.turn_requested for fact in desk.sent)}
    assert list(asked) == ["back", "busy", "held", "new"]
    assert {turn: (each.attempt, each.age_ms, list(each.without)) for turn, each in asked.items()} == {
        "back": (2, 5_000, ["a"]),
        "busy": (2, 5_000, []),  # it may have room later
        "held": (1, 5_000, []),
        "new": (1, 0, []),
    }
    assert asked["back"].run == "r"  # as the scheduler had resolved it


def test_a_turn_asked_between_hello_and_welcome_is_asked_once(desk: Desk) -> None:
    desk.ledger.closed()
    desk.ledger.opening()
    desk.asked("t")
    assert desk.take() == []
    desk.ledger.opened()
    assert desk.take() == ["turn_requested 1"]


def test_facts_between_hello_and_welcome_follow_the_memory(desk: Desk) -> None:
    desk.asked("t")
    desk.place("t")
    desk.take()
    desk.ledger.closed()
    desk.ledger.opening()
    desk.ledger.finished("t", "stop", None, paused=False)
    assert desk.take() == ["turn_finished 1"]


def test_a_turn_that_the_scheduler_knows_from_hello_only_is_asked_for_when_it_is_given_back(desk: Desk) -> None:
    desk.asked("t")
    desk.place("t")
    desk.ledger.closed()
    desk.connect("a", "b")
    desk.take()
    desk.ledger.give_back("t", ReturnReason.UNREACHABLE)
    assert desk.take() == ["turn_returned 1", "turn_requested 2"]


def test_a_place_on_a_replica_not_yet_announced_waits_for_its_announcement(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place(replica="new")
    assert waiter.told == []
    assert set(desk.ledger.memory.in_flight) == {"t"}  # its place is counted
    absorb(desk.ledger, a_list_of("a", "new"))
    assert [word.replica.name for word in waiter.final if isinstance(word, Placement)] == ["new"]


def test_a_place_on_a_replica_that_nobody_announces_is_given_back(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place(replica="new")
    desk.now = PARKED_SECONDS_MAX
    desk.ledger.tick()
    desk.ledger.tick()
    assert desk.take() == ["turn_requested 1", "turn_returned 1"]
    assert desk.ledger.memory.in_flight == {}
    desk.place(attempt=2)
    assert len(waiter.final) == 1


def test_a_parked_place_can_be_abandoned(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place(replica="new")
    desk.ledger.abandon("t")
    absorb(desk.ledger, a_list_of("new"))
    desk.now = 10.0
    desk.ledger.tick()
    assert waiter.told == []
    assert desk.take() == ["turn_requested 1", "turn_abandoned 1"]


def test_a_parked_place_does_not_outlive_its_session(desk: Desk) -> None:
    waiter = desk.asked()
    desk.place(replica="new")
    desk.ledger.closed()
    assert desk.ledger.memory.in_flight == {}
    desk.take()
    desk.connect("new")
    assert desk.take() == ["turn_requested 2"]
    desk.place(replica="new", attempt=2)
    assert len(waiter.final) == 1


def test_a_replica_without_its_key_is_reported_once_per_session_and_not_listed() -> None:
    desk = Desk()
    desk.connect()
    absorb(desk.ledger, a_list_of("hosted", api_key_env="NO_SUCH_KEY"))
    absorb(desk.ledger, a_list_of("hosted", api_key_env="NO_SUCH_KEY", state="healthy"))
    assert desk.take() == ["replica_unusable"]
    assert dict(desk.ledger.replicas) == {}
    desk.ledger.closed()
    desk.connect()
    absorb(desk.ledger, a_list_of("hosted", api_key_env="NO_SUCH_KEY"))
    assert desk.take() == ["replica_unusable"]


def test_a_replica_that_has_no_key_here_was_not_tried() -> None:
    """A new scheduler places a turn there before it hears of that. The next one must not be told that the replica could not be reached."""
    desk = Desk()
    desk.connect()
    desk.asked()
    absorb(desk.ledger, a_list_of("hosted", api_key_env="NO_SUCH_KEY"))
    desk.place(replica="hosted")
    assert desk.take() == ["turn_requested 1", "replica_unusable", "turn_returned 1"]
    desk.ledger.closed()
    desk.connect()
    assert list(desk.sent[-1].turn_requested.without) == []
    desk.place(replica="nobody-announced-it", attempt=2)
    desk.now += 10.0
    desk.ledger.tick()
    desk.ledger.closed()
    desk.connect()
    assert list(desk.sent[-1].turn_requested.without) == ["nobody-announced-it"]


def test_turns_that_are_asked_for_together_keep_their_order_whatever_their_ages_round_to() -> None:
    """Each look at the clock is a little later; ages are whole milliseconds."""
    desk = Desk()
    for number in range(20):
        desk.ledger.ask(an_ask(f"t{number:02}"), Recorder())
        desk.now += 0.00004

    def clock() -> float:
        desk.now += 0.0003
        return desk.now

    desk.ledger._clock = clock
    desk.connect()
    ages = [fact.turn_requested.age_ms for fact in desk.sent if fact.HasField("turn_requested")]
    assert len(ages) == 20
    assert ages == sorted(ages, reverse=True)


def test_a_key_comes_from_the_environment_only() -> None:
    desk = Desk()
    desk.connect()
    absorb(desk.ledger, a_list_of("hosted", api_key_env="KEY"))
    assert desk.ledger.replicas["hosted"].api_key == "secret"
    assert desk.take() == []


@pytest.mark.parametrize(
    ("replica", "says"),
    [
        (pb.Replica(name="x", url="ftp://x"), "http://"),
        (pb.Replica(name="x", url=""), "http://"),
        (pb.Replica(name="x", url="http://x", kind=9), "newer"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_replica_that_makes_no_sense_is_reported_unusable(replica: pb.Replica, says: str) -> None:
    desk = Desk()
    desk.connect()
    absorb(desk.ledger, pb.Order(replicas=pb.Replicas(replicas=[replica])))
    assert says in desk.sent[0].replica_unusable.reason


def test_a_waiter_that_fails_does_not_harm_the_others(desk: Desk) -> None:
    class Broken(Recorder):
        def placed(self, placement: Placement) -> None:
            raise RuntimeError

    desk.ledger.ask(an_ask("bad"), Broken())
    good = desk.asked("good")
    desk.place("bad")
    desk.place("good")
    assert len(good.final) == 1
    assert desk.ledger.counts["waiter_failed"] == 1


def test_a_run_ended_while_disconnected_refuses_its_held_turns_here(desk: Desk) -> None:
    held, other = desk.asked("t1", run="mine"), desk.asked("t2", run="other")
    desk.ledger.closed()
    desk.ledger.end_run("mine", "")
    assert [word.status for word in held.final if isinstance(word, Refusal)] == [409]
    assert other.final == []
    desk.take()
    desk.connect("a")
    assert desk.take() == ["run_ended", "turn_requested 1"]


def ended(desk: Desk) -> list[tuple[str, str, int]]:
    """The runs that were told to be over since the last call."""
    told = [fact.run_ended for fact in desk.sent if fact.WhichOneof("fact") == "run_ended"]
    desk.sent.clear()
    return [(each.run, each.principal, each.age_ms) for each in told]


def reconnect(desk: Desk) -> None:
    desk.ledger.closed()
    desk.connect("a")


def test_a_run_that_was_ended_is_told_again_after_each_hello_with_its_age(desk: Desk) -> None:
    desk.now = 100.0
    desk.ledger.end_run("r1", "p")
    desk.now = 100.5
    desk.ledger.end_run("r2", "")
    assert ended(desk) == [("r1", "p", 0), ("r2", "", 0)]
    for now, ages in ((102.0, (2_000, 1_500)), (130.0, (30_000, 29_500))):
        desk.now = now
        reconnect(desk)
        assert ended(desk) == [("r1", "p", ages[0]), ("r2", "", ages[1])]


def test_a_run_ended_between_hello_and_welcome_is_told_once_and_refuses_what_is_held(desk: Desk) -> None:
    held = desk.asked("t1", run="mine")
    desk.ledger.closed()
    desk.ledger.opening()
    desk.ledger.end_run("mine", "")
    assert [word.status for word in held.final if isinstance(word, Refusal)] == [409]
    desk.take()
    desk.ledger.opened()
    assert desk.take() == ["run_ended"]


def test_a_run_that_had_a_turn_since_it_was_ended_goes_on(desk: Desk) -> None:
    desk.asked("t0", run="r")
    desk.place("t0")
    desk.ledger.end_run("r", "")
    desk.ledger.finished("t0", "stop", None, paused=False)
    desk.sent.clear()
    reconnect(desk)
    assert ended(desk) == [("r", "", 0)]
    desk.asked("t1", run="r")
    reconnect(desk)
    assert ended(desk) == [("r", "", 0)]  # held only
    desk.place("t1")
    desk.sent.clear()
    reconnect(desk)
    assert ended(desk) == []


def test_a_turn_of_another_principal_does_not_bring_an_ended_run_back(desk: Desk) -> None:
    desk.ledger.end_run("r", "p")
    desk.asked("t", run="r", principal="q")
    desk.place("t")
    desk.sent.clear()
    reconnect(desk)
    assert ended(desk) == [("r", "p", 0)]


def test_ended_runs_are_forgotten_with_time_and_beyond_their_number(desk: Desk) -> None:
    desk.ledger.end_run("old", "")
    desk.now = 1_799.0
    desk.ledger.end_run("new", "")
    desk.sent.clear()
    reconnect(desk)
    assert [run for run, _, _ in ended(desk)] == ["old", "new"]
    desk.now = 1_800.0
    reconnect(desk)
    assert [run for run, _, _ in ended(desk)] == ["new"]
    for number in range(ENDED_RUNS_MAX):
        desk.ledger.end_run(f"r{number}", "")
    desk.sent.clear()
    reconnect(desk)
    runs = [run for run, _, _ in ended(desk)]
    assert (len(runs), runs[0], runs[-1]) == (ENDED_RUNS_MAX, "r0", f"r{ENDED_RUNS_MAX - 1}")


def test_a_run_that_another_dataplane_ended_is_forgotten(desk: Desk) -> None:
    desk.asked("t", principal="p")
    desk.place("t")
    desk.ledger.finished("t", "stop", None, paused=False)
    assert len(desk.ledger.memory.runs) == 1
    absorb(desk.ledger, pb.Order(run_forgotten=pb.RunForgotten(run="r", principal="")))
    assert len(desk.ledger.memory.runs) == 1
    absorb(desk.ledger, pb.Order(run_forgotten=pb.RunForgotten(run="r", principal="p")))
    assert len(desk.ledger.memory.runs) == 0
    desk.sent.clear()
    reconnect(desk)
    assert ended(desk) == []  # whoever ended it says so


def test_where_a_response_is_stored_is_answered_once(desk: Desk) -> None:
    found: list[str] = []
    desk.ledger.locate("resp_1", "p", found.append)
    asked = desk.sent[-1].locate
    assert (asked.response, asked.principal, len(asked.query)) == ("resp_1", "p", 26)
    order = pb.Order(located=pb.Located(query=asked.query, replica="b", run="r"))
    absorb(desk.ledger, order)
    absorb(desk.ledger, order)
    assert found == ["b"]
    assert desk.ledger.counts["unknown_query"] == 1


def test_nobody_to_ask_where_a_response_is_stored_is_an_answer_too(desk: Desk) -> None:
    found: list[str] = []
    desk.ledger.locate("resp_1", "", found.append)
    assert found == []
    desk.ledger.closed()
    assert found == [""]
    desk.ledger.locate("resp_1", "", found.append)
    desk.ledger.opening()
    desk.ledger.locate("resp_1", "", found.append)
    assert found == ["", "", ""]
    desk.ledger.opened()
    desk.sent.clear()
    desk.ledger.locate("x" * 600, "", found.append)  # no engine makes such an id
    assert desk.sent == []
    assert len(found) == 4


def test_an_answer_that_is_not_waited_for_goes_nowhere(desk: Desk) -> None:
    found: list[str] = []
    query = desk.ledger.locate("resp_1", "", found.append)
    desk.ledger.unseek(query)
    absorb(desk.ledger, pb.Order(located=pb.Located(query=query, replica="b")))
    desk.ledger.closed()
    assert found == []


def test_too_many_open_queries_answer_the_oldest(desk: Desk) -> None:
    found: list[int] = []
    for number in range(SEEKERS_MAX + 2):
        desk.ledger.locate("resp", "", lambda _, number=number: found.append(number))
    assert found == [0, 1]


def test_one_turn_id_can_be_asked_once(desk: Desk) -> None:
    desk.asked("t")
    with pytest.raises(ValueError, match="asked for before"):
        desk.asked("t")


def test_nothing_that_a_client_or_engine_writes_can_end_the_session(desk: Desk) -> None:
    """O10, O11: a fact that can't be sent would be asked again after each reconnect."""
    desk.asked(
        "t", model="m\ud83e" + "x" * 10_000_000, previous_response="y" * 600, tool_call_ids=tuple(f"{n}\ud83e" for n in range(9_999))
    )
    desk.place("t")
    desk.ledger.tool_calls_seen("t", ["", "\ude00", "z" * 600])
    desk.ledger.tool_calls_seen("t", [""])
    desk.ledger.response_seen("t", "")
    tools = ("look\ud83e", "x" * 5_000, *map(str, range(99)))
    desk.ledger.finished("t", "stop\ud83e" + "x" * 5_000, None, paused=True, tool_call_ids=("", "\ude00"), tools=tools)
    batch = pb.FactBatch(facts=desk.sent)
    assert pb.FactBatch.FromString(batch.SerializeToString()) == batch
    assert batch.ByteSize() < 20_000
    asked = batch.facts[0].turn_requested
    assert (asked.model[:3], len(asked.model), asked.previous_response) == ("m?x", 1_024, "")
    assert (len(asked.tool_call_ids), asked.tool_call_ids[0]) == (256, "0?")  # the newest come first
    assert [list(fact.tool_call_seen.ids) for fact in batch.facts if fact.WhichOneof("fact") == "tool_call_seen"] == [["?"]]
    told = list(batch.facts[-1].turn_finished.tools)
    assert (told[:3], len(told)) == (["look?", "x" * 128, "0"], 16)
    (part,) = Snapshot(desk.ledger.memory, 1.0).parts()
    assert part.runs[0].lanes[0].model == asked.model


def test_names_in_other_scripts_stay_as_they_are(desk: Desk) -> None:
    desk.asked("t", model="模型", parent="é", tool_call_ids=("ü",))
    asked = desk.sent[0].turn_requested
    assert (asked.model, asked.parent, list(asked.tool_call_ids)) == ("模型", "é", ["ü"])


# ---- leases -----------------------------------------------------------------------------------------------------


def lease_place(desk: Desk, turn: str = "t", *, attempt: int = 1, model: str = "", level: int = 0) -> None:
    placed = pb.Placed(turn=turn, attempt=attempt, run="r", replica="a", turn_seq=1, fence=7, model=model, level=level, answer_share=0.5)
    absorb(desk.ledger, pb.Order(placed=placed))


def test_with_a_session_the_end_of_a_turn_says_how_its_lease_ended_and_what_its_answer_told_goes_before_it(desk: Desk) -> None:
    desk.asked()
    lease_place(desk)
    desk.ledger.started("t")
    desk.ledger.answer_told("t", 200, {"x-ratelimit-remaining-requests": "3"}, "")
    desk.ledger.finished("t", "stop", Usage(10, 20), paused=False)
    assert desk.take() == ["turn_requested 1", "answer_told 1", "turn_finished 1"]
    desk.ledger.closed()
    desk.connect("a")
    assert desk.take() == []


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda ledger: ledger.finished("t", "stop", Usage(10, 20), paused=False), "OUTCOME_ANSWERED"),
        (lambda ledger: ledger.failed("t", "engine_died"), "OUTCOME_FAILED"),
        (lambda ledger: ledger.give_back("t", ReturnReason.LIMITED), "OUTCOME_LIMITED"),
        (lambda ledger: ledger.give_back("t", ReturnReason.UNREACHABLE), "OUTCOME_FAILED"),  # an engine had it
    ],
)
def test_how_leases_ended_without_a_session_is_told_after_the_next_hello(
    desk: Desk, end: Callable[[Ledger[pb.Fact]], None], outcome: str
) -> None:
    desk.asked()
    lease_place(desk)
    desk.ledger.started("t")
    desk.ledger.closed()
    desk.ledger.answer_told("t", 429, {"retry-after": "9"}, "later")
    end(desk.ledger)
    desk.sent.clear()
    desk.connect("a")
    (told,) = [fact.lease_told for fact in desk.sent if fact.WhichOneof("fact") == "lease_told"]
    assert (told.turn, told.attempt, told.replica, told.fence) == ("t", 1, "a", 7)
    assert told.outcome == pb.LeaseTold.Outcome.Value(outcome)
    assert (told.answer.status, dict(told.answer.headers), told.answer.excerpt) == (429, {"retry-after": "9"}, "later")
    assert (told.prompt_tokens, told.answer_tokens) == ((10, 20) if outcome == "OUTCOME_ANSWERED" else (0, 0))
    desk.ledger.closed()
    desk.sent.clear()
    desk.connect("a")
    assert not any(fact.WhichOneof("fact") == "lease_told" for fact in desk.sent), "once"


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("connected", [True, False])
def test_a_call_that_an_engine_had_is_charged_although_the_turn_goes_elsewhere(desk: Desk, sent: bool, connected: bool) -> None:
    desk.asked()
    lease_place(desk)
    if sent:
        desk.ledger.started("t")
    if not connected:
        desk.ledger.closed()
    desk.ledger.give_back("t", ReturnReason.UNREACHABLE)
    if connected:
        assert desk.take() == ["turn_requested 1", *(["lease_told 1"] if sent else []), "turn_returned 1"]
        return
    desk.sent.clear()
    desk.connect("a")
    (told,) = [fact.lease_told for fact in desk.sent if fact.WhichOneof("fact") == "lease_told"]
    assert told.outcome == (pb.LeaseTold.OUTCOME_FAILED if sent else pb.LeaseTold.OUTCOME_UNUSED)


def test_leases_that_ended_without_a_session_are_bounded(desk: Desk) -> None:
    for number in range(3):
        desk.asked(f"t{number}")
        lease_place(desk, f"t{number}")
        desk.ledger.started(f"t{number}")
    desk.ledger.closed()
    desk.ledger._leases_ended = deque(desk.ledger._leases_ended, maxlen=2)
    for number in range(3):
        desk.ledger.failed(f"t{number}", "engine_died")
    desk.sent.clear()
    desk.connect("a")
    assert [fact.lease_told.turn for fact in desk.sent if fact.WhichOneof("fact") == "lease_told"] == ["t1", "t2"]


def test_leases_and_where_a_run_has_fallen_are_in_the_memory(desk: Desk) -> None:
    waiter = desk.asked(model="large")
    lease_place(desk, model="small", level=3)
    (placement,) = waiter.told
    assert isinstance(placement, Placement)
    assert placement.lease == Lease(7, 3, 0.5, 0, "small")
    (part,) = Snapshot(desk.ledger.memory, desk.now).parts()
    assert (part.turns[0].fence, part.turns[0].model) == (7, "small")
    assert dict(part.runs[0].fell) == {"large": "small"}
    assert [lane.model for lane in part.runs[0].lanes] == ["small"]


def test_what_is_kept_of_turns_that_are_over_grows_no_further_once_the_memory_has_lasted() -> None:
    desk, names = Desk(), count()
    desk.connect("a")

    def generation() -> int:
        """Turns of all kinds for as long as the memory lasts; how many blocks of memory the process has then."""
        for number in islice(names, 300):
            desk.now += 6.0
            turn, call = f"t{number}", f"call_{number:016x}_made_here"
            desk.asked(turn, run=f"run_{number}", tool_call_ids=(f"call_{number:016x}_made_elsewhere",), head_digest=b"12345678")
            desk.place(turn, run=f"run_{number}")
            desk.ledger.tool_calls_seen(turn, [call])
            desk.ledger.finished(turn, "tool_calls", None, paused=True, tool_call_ids=[call])
            desk.ledger.end_run(f"gone_{number}", "")
            desk.take()
            desk.ledger.tick()
            desk.ledger.sweep()
        collect()
        return getallocatedblocks()

    for _ in range(2):  # the second replaces the first
        generation()
    before = generation()
    assert abs(generation() - before) < 150  # a single object of each turn would be 300


# ---- single passes that go unasked ------------------------------------------------------------------------------


def judges(*names: str, unasked: bool = True, state: str = "healthy") -> pb.Order:
    """Classifiers that all serve one model."""
    found = [
        pb.Replica(name=name, url=f"http://{name}:1", models=["m"], kind=pb.KIND_CLASSIFIER, state=state, passes_unasked=unasked)
        for name in names
    ]
    return pb.Order(replicas=pb.Replicas(replicas=found))


@pytest.fixture
def judged(desk: Desk) -> Desk:
    absorb(desk.ledger, judges("j"))
    desk.take()
    return desk


def a_pass(desk: Desk, turn: str = "t", **more: object) -> Recorder:
    return desk.asked(turn, kind=Kind.CLASSIFIER, **more)


def places(waiter: Recorder) -> list[tuple[str, str, int]]:
    return [(each.replica.name, each.run, each.attempt) for each in waiter.told if isinstance(each, Placement)]


def test_a_pass_that_can_go_to_one_replica_only_goes_at_once_and_is_told_with_its_place(judged: Desk) -> None:
    first, second = a_pass(judged), a_pass(judged, "u", run="mine")
    assert (places(first), places(second)) == ([("j", "run_of_t", 1)], [("j", "mine", 1)])
    told = [fact.turn_requested for fact in judged.sent]
    assert [(fact.turn, fact.attempt, fact.run, fact.fresh_run, fact.sent_to, fact.kind) for fact in told] == [
        ("t", 1, "", "run_of_t", "j", pb.KIND_CLASSIFIER), ("u", 1, "mine", "run_of_u", "j", pb.KIND_CLASSIFIER),
    ]  # fmt: skip
    assert judged.ledger.in_flight() == ["t", "u"]
    judged.ledger.finished("t", "", None, paused=False)
    judged.ledger.failed("u", "engine_error")
    assert judged.take() == ["turn_requested 1", "turn_requested 1", "turn_finished 1", "turn_failed 1"]
    assert judged.ledger.memory.in_flight == {}


def test_a_generative_turn_is_always_asked_for(desk: Desk) -> None:
    absorb(desk.ledger, a_list_of("a", state="healthy", passes_unasked=True))
    desk.sent.clear()
    assert places(desk.asked()) == []
    assert [fact.turn_requested.sent_to for fact in desk.sent] == [""]


def test_a_hello_lists_it_and_no_request_is_repeated(judged: Desk) -> None:
    a_pass(judged)
    judged.ledger.closed()
    judged.sent.clear()
    judged.ledger.opening()
    parts = list(Snapshot(judged.ledger.memory, 0.0).parts())
    judged.ledger.opened()
    assert [(turn.turn, turn.replica, turn.attempt, turn.kind) for part in parts for turn in part.turns] == [
        ("t", "j", 1, pb.KIND_CLASSIFIER)
    ]
    assert judged.take() == []


def test_without_a_session_or_before_its_announcement_nothing_goes_unasked(judged: Desk) -> None:
    judged.ledger.closed()
    waiters = [a_pass(judged, "closed")]
    judged.ledger.opening()
    waiters.append(a_pass(judged, "opening"))
    judged.ledger.opened()
    waiters.append(a_pass(judged, "opened"))
    assert [fact.turn_requested.sent_to for fact in judged.sent] == ["", "", ""]
    absorb(judged.ledger, judges("j"))
    waiters.append(a_pass(judged, "announced"))
    assert [places(each) for each in waiters] == [[], [], [], [("j", "run_of_announced", 1)]]


@pytest.mark.parametrize("reason", [ReturnReason.UNREACHABLE, ReturnReason.BUSY])
def test_one_that_came_back_is_the_schedulers_and_so_are_those_behind_it_until_it_places_one_there(
    judged: Desk, reason: ReturnReason
) -> None:
    back = a_pass(judged)
    on_its_way = desk_asks_elsewhere(judged)
    judged.ledger.give_back("t", reason)
    assert places(a_pass(judged, "doubts")) == []
    judged.place("before", "j")  # decided before the scheduler could hear of it
    assert places(on_its_way) == [("j", "r", 1)]
    assert places(a_pass(judged, "still-doubts")) == []
    judged.place("t", "j", attempt=2)  # this one was not requested anew
    assert places(back) == [("j", "run_of_t", 1), ("j", "r", 2)]
    assert places(a_pass(judged, "doubts-on")) == []
    judged.place("doubts", "j")
    assert places(a_pass(judged, "trusts")) == [("j", "run_of_trusts", 1)]


def desk_asks_elsewhere(desk: Desk) -> Recorder:
    """A turn that is asked for, since it claims a priority."""
    return a_pass(desk, "before", priority=1)


def test_a_suspected_replica_gets_no_pass_unasked(judged: Desk) -> None:
    judged.ledger.suspect("j", "refused")
    assert places(a_pass(judged)) == []
    judged.place("t", "j")
    assert places(a_pass(judged, "u")) == [("j", "run_of_u", 1)]


def test_with_a_second_one_or_a_cap_the_scheduler_places_again(judged: Desk) -> None:
    for number, order in enumerate((judges("j", "k"), judges("j", unasked=False), judges("j", state="unhealthy"))):
        absorb(judged.ledger, order)
        assert places(a_pass(judged, f"t{number}")) == []


def test_a_waiter_of_a_pass_that_fails_does_not_end_the_session(judged: Desk) -> None:
    class Broken(Recorder):
        def placed(self, placement: Placement) -> None:
            raise RuntimeError("a bug")

    judged.ledger.ask(an_ask("t", kind=Kind.CLASSIFIER), Broken())
    assert judged.ledger.counts["waiter_failed"] == 1


def test_an_order_for_one_that_went_unasked_changes_nothing(judged: Desk) -> None:
    waiter = a_pass(judged)
    judged.place("t", "j", run="other")
    judged.refuse("t")
    assert places(waiter) == [("j", "run_of_t", 1)]
    assert waiter.told == waiter.final[:1]
    assert judged.ledger.counts["stale_attempt"] == 2
