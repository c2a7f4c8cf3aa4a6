"""Does every kind of value in the scheduler's state survive JSON?"""

import math

import msgspec
import pytest
from immutables import Map

from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import Load, ReplicaSpec, TurnClass
from luftpause.scheduler.core.model import Dataplane, Health, QueueKey, Replica, Run
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.sorted_set import sorted_set
from luftpause.scheduler.record_values import UnknownValueError, decode, encode, to_bytes

KEY = QueueKey(1, "generative", "m", "chat", "", ("a",), (), ())


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1, 1 << 70, 0.1, math.inf, -math.inf, "", "ü\x1f", b"", b"\x00\xff", (), (1, ("a", b"b")), frozenset({"a", "b"}),
        Map({"a": 1, ("b", b"c"): (2,)}), Map(), sorted_set(range(100)), sorted_set([KEY]), TurnClass.BATCH, HoldReason.CAPPED,
        Health.UNKNOWN, KEY, Settings(hold_seconds_max=1.5),
        Replica("a", ReplicaSpec("a", "http://a", ("m",)), load=Load(1, 2)), Dataplane("d", listed=frozenset({"t"})),
        Run("k", "i", "p", "c", TurnClass.BATCH, ids=((1.0, ("p", "c", "call_0", b"d")),)),
    ],
)  # fmt: skip
def test_a_value_comes_back_with_its_type(value: object) -> None:
    back = decode(msgspec.json.decode(to_bytes(encode(value))))
    assert back == value
    assert type(back) is type(value)


def test_not_a_number_stays_one() -> None:
    assert math.isnan(decode(msgspec.json.decode(to_bytes(encode(math.nan)))))


def test_equal_values_of_different_types_stay_different() -> None:
    assert [type(item) for item in decode(encode((True, 1, 1.0)))] == [bool, int, float]


def test_the_order_in_which_maps_and_sets_grew_does_not_show() -> None:
    names = [f"run-{n}" for n in range(50)]
    there, back = ((Map([(name, 1) for name in order]), frozenset(order)) for order in (names, names[::-1]))
    assert to_bytes(encode(there)) == to_bytes(encode(back))


def test_fields_with_default_values_are_left_out_but_settings_are_whole() -> None:
    assert encode(Load(1, 2)) == {"$Load": {"running": 1, "waiting": 2}}
    assert "session" not in encode(Dataplane("d"))["$Dataplane"]
    assert set(encode(Settings())["$Settings"]) == set(Settings.__struct_fields__)


def test_what_the_core_does_not_use_is_named() -> None:
    with pytest.raises(UnknownValueError, match="a list can't be recorded"):
        encode(Map({"a": [1]}))


@pytest.mark.parametrize(
    ("json", "message"),
    [
        ({"$Gone": {}}, "no 'Gone'; replay the log with the version that wrote it"),
        ({"$Load": {"running": 1, "waiting": 2, "odd": 3}}, "Load: .*odd"),
        ({"$Load": {}}, "Load: .*running"),
        ({"$Health": "ill"}, "Health: 'ill'"),
    ],
)
def test_what_this_version_does_not_know_is_named(json: object, message: str) -> None:
    with pytest.raises(UnknownValueError, match=message):
        decode(json)
