"""May a replica take a turn now?"""

import pytest
from msgspec.structs import replace

from luftpause.scheduler.core.admission import admits, full, limit, most_room, passes_unasked, reported, with_arrival
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import Load, ReplicaSpec, TurnClass
from luftpause.scheduler.core.model import GENERATIVE, UNLIMITED, Health, Replica
from luftpause.scheduler.core.settings import Settings

SETTINGS = Settings()
WELL = Replica("a", ReplicaSpec("a", "http://a"), health=Health.HEALTHY, models=("m",))
INTERACTIVE, BATCH = int(TurnClass.INTERACTIVE), int(TurnClass.BATCH)


@pytest.mark.parametrize(
    ("changes", "interactive", "batch"),
    [
        pytest.param({}, None, None, id="never had metrics: not capped"),
        pytest.param({"health": Health.UNKNOWN}, HoldReason.NO_REPLICA, HoldReason.NO_REPLICA, id="not probed yet"),
        pytest.param({"removed": True}, HoldReason.NO_REPLICA, HoldReason.NO_REPLICA, id="removed"),
        pytest.param({"cap": 2, "in_flight": 2}, HoldReason.CAPPED, HoldReason.CAPPED, id="at its cap"),
        pytest.param({"cap": 2, "in_flight": 1, "reserved": 1}, None, HoldReason.RESERVED, id="a paused run will return"),
        pytest.param({"in_flight": 500, "reserved": 9}, None, None, id="no cap, no reserve"),
        pytest.param({"load": Load(0, 0), "has_load": True, "in_flight": 8}, HoldReason.CAPPED, HoldReason.CAPPED, id="burst of 8"),
        pytest.param({"load": Load(20, 0), "has_load": True, "in_flight": 30, "seen": 11}, None, None, id="burst of what it runs"),
        pytest.param(
            {"load": Load(20, 0), "has_load": True, "in_flight": 30, "seen": 10}, HoldReason.CAPPED, HoldReason.CAPPED, id="and no more"
        ),
        pytest.param({"has_load": True, "in_flight": 16}, HoldReason.CAPPED, HoldReason.CAPPED, id="metrics went missing: 16"),
        pytest.param({"has_load": True, "cap": 40, "in_flight": 39}, None, None, id="metrics went missing: the last cap holds"),
        pytest.param({"cap": 1, "busy": True}, HoldReason.CAPPED, HoldReason.CAPPED, id="said it is full, nothing of ours there"),
    ],
)
def test_a_replica_admits_by_its_cap_its_load_and_who_is_paused_there(
    changes: dict[str, object], interactive: HoldReason | None, batch: HoldReason | None
) -> None:
    replica = replace(WELL, **changes)
    assert admits(replica, "generative", INTERACTIVE, SETTINGS) is interactive
    assert admits(replica, "generative", BATCH, SETTINGS) is batch


def test_max_in_flight_holds_whatever_the_metrics_say_and_single_passes_count() -> None:
    replica = replace(WELL, spec=replace(WELL.spec, max_in_flight=3), in_flight=1, passes=1)
    assert admits(replica, "generative", INTERACTIVE, SETTINGS) is None
    assert admits(replace(replica, passes=2), "generative", INTERACTIVE, SETTINGS) is HoldReason.CAPPED
    assert admits(replace(replica, passes=2), "embedding", INTERACTIVE, SETTINGS) is HoldReason.CAPPED


@pytest.mark.parametrize("kind", ["classifier", "embedding"])
def test_single_passes_take_no_generative_place_and_wait_for_none(kind: str) -> None:
    assert admits(replace(WELL, cap=1, in_flight=1, reserved=5), kind, BATCH, SETTINGS) is None


def test_a_cap_is_never_below_one() -> None:
    assert reported(WELL, Load(0, 7), 1.0, SETTINGS).cap == 1


def test_max_in_flight_is_meant_as_it_stands_whatever_passes_or_gauges_say() -> None:
    two = replace(WELL, spec=replace(WELL.spec, max_in_flight=2), cap=9)
    assert [limit(replace(two, passes=passes), SETTINGS) for passes in (0, 1, 2, 5)] == [2, 1, 0, 0]
    assert limit(replace(two, spec=replace(WELL.spec, max_in_flight=0)), SETTINGS) == 0


def test_a_cap_rises_while_it_binds_and_is_forgotten_when_it_does_not() -> None:
    capped = replace(WELL, cap=4, has_load=True)
    assert reported(replace(capped, in_flight=4), Load(4, 0), 1.0, SETTINGS).cap == 5
    assert reported(replace(capped, in_flight=3, reserved=1), Load(3, 0), 1.0, SETTINGS).cap == 5
    assert reported(replace(capped, in_flight=3), Load(3, 0), 1.0, SETTINGS).cap is None
    assert reported(replace(capped, in_flight=4), Load(4, 0), 1.0, replace(SETTINGS, cap_release="at_once")).cap is None


def test_turns_that_have_just_been_placed_are_no_queue_where_nothing_caps_their_engine() -> None:
    """At 10 s three were placed and one a second before: what waits then may be those three, on their way to the engine's next step."""
    busy = replace(WELL, has_load=True, load=Load(2, 0), in_flight=6)
    for at in (9.0, 10.0, 10.0, 10.0):
        busy = replace(busy, arrivals=with_arrival(busy, at, 0.1))
    assert busy.arrivals == (10.0, 10.0, 10.0)
    assert reported(busy, Load(2, 3), 10.1, SETTINGS, arriving=0.1).cap is None
    assert reported(busy, Load(2, 4), 10.1, SETTINGS, arriving=0.1).cap == 2, "one more than can have come"
    assert reported(busy, Load(2, 1), 10.2, SETTINGS, arriving=0.1).cap == 2, "it has waited for too long"
    assert reported(busy, Load(2, 1), 10.1, SETTINGS).cap == 2, "a policy to which all that waits is a queue"
    assert reported(replace(busy, cap=5), Load(2, 1), 10.1, SETTINGS, arriving=0.1).cap == 2, "it is full already"
    after = reported(busy, Load(2, 3), 10.1, SETTINGS, arriving=0.1)
    assert reported(after, Load(2, 3), 10.1, SETTINGS, arriving=0.1).cap == 2, "each arrival explains one report"


def test_no_more_than_eight_arrivals_are_remembered_and_none_where_no_report_is_read_for_them() -> None:
    busy = replace(WELL, has_load=True, load=Load(2, 0))
    for _ in range(20):
        busy = replace(busy, arrivals=with_arrival(busy, 5.0, 0.1))
    assert busy.arrivals == (5.0,) * 8
    assert reported(busy, Load(2, 9), 5.0, SETTINGS, arriving=0.1).cap == 2
    assert with_arrival(busy, 5.0, 0.0) == ()
    assert with_arrival(replace(busy, cap=3), 5.0, 0.1) == ()
    assert with_arrival(replace(busy, load=None), 5.0, 0.1) == ()


def test_a_full_engine_gets_no_more_than_it_has_until_a_probe() -> None:
    replica = full(replace(WELL, in_flight=5), GENERATIVE)
    assert replica.cap == 5
    assert full(replace(WELL, cap=3, in_flight=5), GENERATIVE).cap == 3
    assert full(WELL, GENERATIVE).cap == 1
    assert not replica.busy, "the end of one of its turns says that there is room"
    assert full(WELL, GENERATIVE).busy
    assert not reported(full(WELL, GENERATIVE), None, 1.0, SETTINGS).busy


def test_a_new_run_goes_where_most_room_is_then_where_least_is_in_flight_then_to_the_first() -> None:
    a, b, c = (replace(WELL, name=name) for name in "abc")
    assert most_room([replace(a, cap=4, in_flight=2), replace(b, cap=9, in_flight=6)], "generative", INTERACTIVE, "", SETTINGS).name == "b"
    assert most_room([replace(a, cap=40), replace(b, in_flight=90)], "generative", INTERACTIVE, "", SETTINGS).name == "b"
    assert most_room([replace(a, in_flight=2), replace(b, in_flight=1), c], "generative", INTERACTIVE, "", SETTINGS).name == "c"
    assert most_room([a, b, c], "generative", INTERACTIVE, "", SETTINGS).name == "a"
    assert most_room([a, replace(b, in_flight=7)], "generative", INTERACTIVE, "b", SETTINGS).name == "b"
    assert most_room([replace(a, cap=4, reserved=3), replace(b, cap=3)], "generative", BATCH, "", SETTINGS).name == "b"


def test_unlimited_is_larger_than_any_count() -> None:
    assert limit(WELL, SETTINGS) == UNLIMITED


@pytest.mark.parametrize("release", ["stepwise", "at_once"])
@pytest.mark.parametrize(("in_flight", "load", "cap"), [
    (0, Load(20, 0), 1),
    (0, Load(20, 5), 1),
    (0, Load(0, 0), 1),
    (5, Load(20, 0), 6),
    (5, Load(20, 5), 6),
    (5, Load(3, 5), 3),
    (5, None, 6),
])  # fmt: skip
def test_after_a_refusal_the_next_report_lets_one_more_try_at_most(in_flight: int, load: Load | None, cap: int, release: str) -> None:
    refused = full(replace(WELL, in_flight=in_flight), GENERATIVE)
    assert reported(refused, load, 1.0, Settings(cap_release=release)).cap == cap


def test_single_passes_that_were_refused_wait_for_the_next_report_and_then_go_one_more_at_a_time() -> None:
    refused = full(replace(WELL, passes=2), "embedding")
    assert admits(refused, "embedding", 0, SETTINGS) is HoldReason.CAPPED
    assert admits(refused, GENERATIVE, 0, SETTINGS) is None
    again = reported(refused, None, 1.0, SETTINGS)
    assert admits(again, "embedding", 0, SETTINGS) is None
    assert admits(replace(again, passes=3), "embedding", 0, SETTINGS) is HoldReason.CAPPED
    assert reported(again, None, 2.0, SETTINGS).passes_cap is None


@pytest.mark.parametrize(
    ("changes", "spec", "open_"),
    [
        pytest.param({"passes": 500, "in_flight": 500, "cap": 1}, {}, True, id="no cap of its turns is one of its passes"),
        pytest.param({"health": Health.UNKNOWN}, {}, False, id="not probed yet"),
        pytest.param({"health": Health.UNHEALTHY}, {}, False, id="down"),
        pytest.param({"removed": True}, {}, False, id="removed"),
        pytest.param({}, {"max_in_flight": 500}, False, id="only counts tell whether there is room"),
        pytest.param({}, {"quota": "api"}, False, id="its quota is asked for"),
        pytest.param({"passes_cap": 500}, {}, False, id="it gave one back"),
    ],
)
def test_passes_go_unasked_to_where_every_pass_is_admitted(changes: dict[str, object], spec: dict[str, object], open_: bool) -> None:
    replica = replace(WELL, spec=replace(WELL.spec, **spec), **changes)
    assert passes_unasked(replica) is open_
    assert not open_ or admits(replica, "classifier", INTERACTIVE, SETTINGS) is None
