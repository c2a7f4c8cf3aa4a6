"""Is nothing lost between the wire and the core?"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler import translate
from luftpause.scheduler.core.decisions import Held, HoldReason, Lease, Place, Refuse
from luftpause.scheduler.core.events import (
    DataplaneAlive,
    Kind,
    ReplicaSuspected,
    ReplicaUnusable,
    ReturnReason,
    RunEnded,
    TurnClass,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    Usage,
)
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, ResponseMemory, RunMemory, ToolCallMemory, TurnMemory
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold

NOW = 1000.0
NOT_FACTS = {"hello", "hello_part", "hello_end"}

# Fields that the core does not decide on, so its events don't carry them.
NOT_CARRIED = {
    "turn_returned.headers",  # for quotas
    "replica_suspected.reason",  # for a person who reads the wire
}


def fields_of(descriptor: Any, path: str) -> Iterator[tuple[str, FieldDescriptor]]:
    for field in descriptor.fields:
        name = f"{path}.{field.name}"
        if field.message_type and not field.message_type.GetOptions().map_entry and not field.is_repeated:
            yield from fields_of(field.message_type, name)
        else:
            yield name, field


def set_at(message: Message, path: list[str], field: FieldDescriptor, *, other: bool) -> None:
    *parents, name = path
    for parent in parents:
        message = getattr(message, parent)
    value = sample(field, other=other)
    if field.message_type:
        getattr(message, name).update(value)
    elif field.is_repeated:
        getattr(message, name).extend([value, value * 2])
    else:
        setattr(message, name, value)


def sample(field: FieldDescriptor, *, other: bool) -> Any:
    if field.message_type:
        return {"x": "y" if other else "z"}
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = "b" if other else "a"
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return other
        case FieldDescriptor.CPPTYPE_ENUM:
            return 2 if other else 1
        case _:
            return 7 if other else 3


def filled(kind: str, changed: str = "") -> pb.Fact:
    """A fact with a value in every field; the one named `changed` has another value."""
    fact = pb.Fact()
    for path, field in fields_of(pb.Fact.DESCRIPTOR.fields_by_name[kind].message_type, kind):
        set_at(fact, path.split("."), field, other=path == changed)
    if kind == "alive" and changed != "alive.lists_turns":
        fact.alive.lists_turns = True
    if kind == "turn_finished" and changed != "turn_finished.usage.cached_known":
        fact.turn_finished.usage.cached_known = True
    return fact


KINDS = sorted({field.name for field in pb.Fact.DESCRIPTOR.fields} - NOT_FACTS)
FIELDS = [path for kind in KINDS for path, _ in fields_of(pb.Fact.DESCRIPTOR.fields_by_name[kind].message_type, kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_fact_has_an_event_with_its_dataplane_and_the_time(kind: str):
    event = translate.event(filled(kind), dataplane="dp", now=NOW)
    assert event is not None
    if isinstance(event, AnswerTold | LeaseTold):  # for the governor, which has a clock of its own
        assert kind in {"answer_told", "lease_told"}
        return
    assert event.now == NOW
    assert isinstance(event, RunEnded) or event.dataplane == "dp"


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_of_a_fact_arrives_in_its_event(path: str):
    kind = path.split(".", maxsplit=1)[0]
    plain = translate.event(filled(kind), dataplane="dp", now=NOW)
    changed = filled(kind, path)
    if path == "alive.lists_turns":
        changed.alive.lists_turns = False
    if path == "turn_finished.usage.cached_known":
        changed.turn_finished.usage.cached_known = False
    assert (translate.event(changed, dataplane="dp", now=NOW) == plain) is (path in NOT_CARRIED)


@pytest.mark.parametrize("kind", sorted(NOT_FACTS))
def test_the_parts_of_a_hello_are_no_events(kind: str):
    fact = pb.Fact()
    getattr(fact, kind).SetInParent()
    assert translate.event(fact, dataplane="dp", now=NOW) is None


def test_a_fact_of_a_newer_version_is_no_event():
    newer = pb.Fact.FromString(b"\xfa\x07\x00")  # field 127
    assert translate.event(newer, dataplane="dp", now=NOW) is None
    assert translate.event(pb.Fact(), dataplane="dp", now=NOW) is None


def test_a_request_keeps_what_was_read_from_it_and_its_age_becomes_its_arrival():
    asked = pb.TurnRequested(
        turn="t", attempt=2, fresh_run="f", run="r", parent="p", turn_class=pb.TURN_CLASS_BATCH, caller="c", model="m",
        kind=pb.KIND_EMBEDDING, api="embeddings", tool_call_ids=["new", "old"], head_digest=b"h", previous_response="resp",
        body_hash=b"b", age_ms=1500, without=["a"], principal="me", body_bytes=9,
    )  # fmt: skip
    assert translate.event(pb.Fact(turn_requested=asked), dataplane="dp", now=NOW) == TurnRequested(
        now=NOW, dataplane="dp", turn="t", attempt=2, fresh_run="f", run="r", parent="p", turn_class=TurnClass.BATCH, caller="c", model="m",
        kind=Kind.EMBEDDING, api="embeddings", tool_call_ids=("new", "old"), head_digest=b"h", previous_response="resp",
        body_hash=b"b", arrived=NOW - 1.5, without=("a",), principal="me", body_bytes=9,
    )  # fmt: skip


def test_what_a_request_leaves_out_is_an_interactive_chat_turn():
    event = translate.event(pb.Fact(turn_requested=pb.TurnRequested(turn="t")), dataplane="dp", now=NOW)
    assert isinstance(event, TurnRequested)
    assert (event.turn_class, event.kind, event.api, event.arrived) == (TurnClass.INTERACTIVE, Kind.GENERATIVE, "chat", NOW)


def test_an_enum_value_of_a_newer_version_does_not_break_a_turn():
    asked = pb.TurnRequested.FromString(pb.TurnRequested(turn="t").SerializeToString() + b"\x30\x63\x48\x63")  # class 99, kind 99
    event = translate.event(pb.Fact(turn_requested=asked), dataplane="dp", now=NOW)
    assert isinstance(event, TurnRequested)
    assert (event.turn_class, event.kind) == (TurnClass.INTERACTIVE, Kind.GENERATIVE)
    back = pb.TurnReturned.FromString(pb.TurnReturned(turn="t").SerializeToString() + b"\x20\x63")
    assert translate.event(pb.Fact(turn_returned=back), dataplane="dp", now=NOW) == TurnReturned(
        NOW, "dp", "t", 0, "", ReturnReason.UNREACHABLE
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        (pb.Usage(prompt_tokens=9, completion_tokens=2), Usage(9, 2, None)),
        (pb.Usage(prompt_tokens=9, completion_tokens=2, cached_tokens=0, cached_known=True), Usage(9, 2, 0)),
    ],
)
def test_usage_that_is_absent_stays_unknown(usage: pb.Usage | None, expected: Usage | None):
    event = translate.event(pb.Fact(turn_finished=pb.TurnFinished(turn="t", usage=usage)), dataplane="dp", now=NOW)
    assert isinstance(event, TurnFinished)
    assert event.usage == expected


def test_an_alive_that_lists_no_turns_differs_from_one_that_does_not_list():
    assert translate.event(pb.Fact(alive=pb.Alive()), dataplane="dp", now=NOW) == DataplaneAlive(NOW, "dp", None, ())
    listing = pb.Fact(alive=pb.Alive(lists_turns=True, delivering=["a"]))
    assert translate.event(listing, dataplane="dp", now=NOW) == DataplaneAlive(NOW, "dp", (), ("a",))


def test_replicas_that_can_not_be_used_name_their_reason():
    suspected = pb.Fact(replica_suspected=pb.ReplicaSuspected(replica="a", reason="refused"))
    unusable = pb.Fact(replica_unusable=pb.ReplicaUnusable(replica="a", reason="no key"))
    assert translate.event(suspected, dataplane="dp", now=NOW) == ReplicaSuspected(NOW, "dp", "a")
    assert translate.event(unusable, dataplane="dp", now=NOW) == ReplicaUnusable(NOW, "dp", "a", "no key")


def test_a_memory_arrives_whole_with_its_ages_as_times():
    part = pb.HelloPart(
        runs=[
            pb.RunRecord(
                run="r", turn_class=pb.TURN_CLASS_BATCH, caller="c", parent="p", turn_seq=5, age_ms=4000, placed_age_ms=6000,
                lanes=[pb.LaneRecord(
                    model="m", home="a", turn_seq=4, idle_age_ms=3000, paused=[pb.PausedBranch(tool_call_ids=["x", "y"], age_ms=2000)]
                )],
                tool_calls=[pb.ToolCallRecord(id="x", head_digest=b"h", age_ms=1000)],
                responses=[pb.ResponseRecord(id="resp", replica="a", age_ms=500)],
            )
        ],
        turns=[
            pb.TurnRecord(
                turn="t", attempt=2, run="r", model="m", replica="a", turn_seq=5, kind=pb.KIND_CLASSIFIER,
                turn_class=pb.TURN_CLASS_BATCH, caller="c", age_ms=250, first_token=True,
            )
        ],
    )  # fmt: skip
    assert list(translate.runs(part, NOW)) == [
        RunMemory(
            run="r", turn_class=TurnClass.BATCH, caller="c", parent="p", turn_seq=5, seen=NOW - 4, placed=NOW - 6,
            lanes=(LaneMemory("m", "a", 4, (PausedBranch(("x", "y"), NOW - 2),), NOW - 3),),
            tool_calls=(ToolCallMemory("x", b"h", NOW - 1),),
            responses=(ResponseMemory("resp", "a", NOW - 0.5),),
        )
    ]  # fmt: skip
    assert list(translate.turns(part, NOW)) == [
        TurnMemory(
            turn="t", attempt=2, run="r", model="m", replica="a", turn_seq=5, turn_class=TurnClass.BATCH, caller="c",
            placed=NOW - 0.25, kind=Kind.CLASSIFIER, first_token=True,
        )
    ]  # fmt: skip


ORDERS = [
    (
        Place("dp", "t", 2, "r", "a", 7, HoldReason.STICKY, 1.5),
        pb.Order(placed=pb.Placed(turn="t", attempt=2, run="r", replica="a", turn_seq=7, hold_reason="sticky", held_ms=1500)),
    ),
    (
        Place("dp", "t", 1, "r", "a", 1, priority=-1),
        pb.Order(placed=pb.Placed(turn="t", attempt=1, run="r", replica="a", turn_seq=1, priority=-1)),
    ),
    (Place("dp", "t", 1, "r", "a", 1), pb.Order(placed=pb.Placed(turn="t", attempt=1, run="r", replica="a", turn_seq=1))),
    (
        Place("dp", "t", 1, "r", "a", 1, lease=Lease(9, 1, 0.5, 256, "small")),
        pb.Order(
            placed=pb.Placed(
                turn="t", attempt=1, run="r", replica="a", turn_seq=1, fence=9, level=1, answer_share=0.5, answer_least=256, model="small"
            )
        ),
    ),
    (Held("dp", "t", 1, "r", HoldReason.CAPPED), pb.Order(held=pb.Held(turn="t", attempt=1, run="r", reason="capped"))),
    (
        Refuse("dp", "t", 1, "r", 503, "no_replica", "none", 0.0015),
        pb.Order(
            refused=pb.Refused(turn="t", attempt=1, run="r", status=503, code="no_replica", message="none", retry_after_ms=2)
        ),
    ),
    (
        translate.Replicas((
            translate.Announced("a", "http://e", ("m",), Kind.CLASSIFIER, "healthy", "KEY", ("chat",), passes_unasked=True),
            translate.Announced("b", "http://f", (), Kind.GENERATIVE, "unknown", asks_usage=True, tells_limits=True, holds_limits=True),
        )),
        pb.Order(
            replicas=pb.Replicas(
                replicas=[
                    pb.Replica(
                        name="a", url="http://e", models=["m"], kind=pb.KIND_CLASSIFIER, state="healthy", api_key_env="KEY", apis=["chat"],
                        passes_unasked=True,
                    ),
                    pb.Replica(
                        name="b", url="http://f", kind=pb.KIND_GENERATIVE, state="unknown", asks_usage=True, tells_limits=True,
                        holds_limits=True,
                    ),
                ]
            )
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("decided", "expected"), ORDERS, ids=lambda value: type(value).__name__)
def test_an_order_says_all_of_its_decision_but_to_whom(decided: translate.Order, expected: pb.Order):
    assert translate.order(decided) == expected


@pytest.mark.parametrize("reason", list(HoldReason))
def test_every_hold_reason_has_its_word_on_the_wire(reason: HoldReason):
    assert translate.order(Held("dp", "t", 1, "r", reason)).held.reason == reason.value


def test_decisions_carry_nothing_that_the_wire_has_no_field_for():
    lease = {field.name for field in msgspec.structs.fields(Lease)}  # on the wire beside the others: a place without one is as short
    for decided, wire in ((Place, pb.Placed), (Held, pb.Held), (Refuse, pb.Refused)):
        names = {field.name for field in msgspec.structs.fields(decided)} - {"dataplane", "sent"}  # one that was sent is told nobody
        names = names - {"lease"} | lease if decided is Place else names
        on_wire = {field.name.replace("_ms", "_seconds") for field in wire.DESCRIPTOR.fields}
        assert names == on_wire


def test_a_number_of_a_run_that_could_not_be_counted_on_is_cut():
    part = pb.HelloPart(
        runs=[pb.RunRecord(run="r", turn_seq=2**64 - 1, lanes=[pb.LaneRecord(model="m", turn_seq=2**64 - 1)])],
        turns=[pb.TurnRecord(turn="t", attempt=1, run="r", model="m", replica="a", turn_seq=2**64 - 1)],
    )
    (run,), (turn,) = translate.runs(part, NOW), translate.turns(part, NOW)
    assert (run.turn_seq, run.lanes[0].turn_seq, turn.turn_seq) == (2**62, 2**62, 2**62)
    place = Place("dp", "t", 1, "r", "a", run.turn_seq + 1)
    assert translate.order(place).placed.turn_seq == 2**62 + 1
