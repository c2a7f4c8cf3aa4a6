"""Do hashed names keep what the rules look at, and nothing else?"""

from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from luftpause.scheduler.core import decisions, events, guard_model, identity, model, policies
from luftpause.scheduler.core.decisions import Forget, Place
from luftpause.scheduler.core.events import Resync, TurnClass, TurnRequested
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, ResponseMemory, RunMemory, ToolCallMemory
from luftpause.scheduler.core.sorted_set import SortedSet
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.record_names import RULES, Names, speechless

NAMES = Names(b"key")
ALL: tuple[type, ...] = (*get_args(events.Event), *get_args(decisions.Decision))


@given(st.text() | st.sampled_from(("call_0", "functions.search:0", "toolu_01AbCdEfGhIjKlMnOp", "call_9f8e7d6c5b4a3f2e1d0c", "x" * 16)))
def test_an_id_says_as_much_or_as_little_as_before(name: str) -> None:
    if not name or "\x1f" in name:
        return
    assert identity.says_nothing(NAMES.text(name)) == identity.says_nothing(name)


@given(st.lists(st.text(min_size=1), unique=True))
def test_different_names_stay_different_and_equal_ones_equal(names: list[str]) -> None:
    hidden = [NAMES.text(name) for name in names]
    assert len(set(hidden)) == len(hidden)
    assert hidden == [Names(b"key").text(name) for name in names]


def test_an_empty_name_stays_empty_and_a_composed_one_composed() -> None:
    assert NAMES.text("") == ""
    assert NAMES.data(b"") == b""
    assert NAMES.text("run\x1fprincipal") == f"{NAMES.text('run')}\x1f{NAMES.text('principal')}"


def test_another_key_gives_another_name() -> None:
    assert Names(b"other").text("run") != NAMES.text("run")
    assert Names(b"other").data(b"run") != NAMES.data(b"run")


def test_an_event_shows_nobodys_name() -> None:
    secret = ("my-run", "my-fresh-run", "my-parent", "my-caller", "my-key", "call_mine", "resp_mine", "my-digest", "my-body")
    request = TurnRequested(
        1.0, "dp", "turn_1", 1, "my-fresh-run", "m", TurnClass.BATCH, "my-caller", "my-run", "my-parent", tool_call_ids=("call_mine",),
        head_digest=b"my-digest", previous_response="resp_mine", body_hash=b"my-body", without=("a",), principal="my-key", body_bytes=7,
    )  # fmt: skip
    memory = RunMemory(
        "my-run", TurnClass.BATCH, "my-caller", 1, 0.5, "my-parent", (LaneMemory("m", "a", 1, (PausedBranch(("call_mine",), 0.1),)),),
        (ToolCallMemory("call_mine", b"my-digest", 0.1),), (ResponseMemory("resp_mine", "a", 0.1),), "my-key",
    )  # fmt: skip
    turn = events.TurnMemory("turn_1", 1, "my-run", "m", "a", 1, TurnClass.BATCH, "my-caller", 0.1, principal="my-key")
    for event in (request, Resync(1.0, "dp", "s", "b", (memory,), (turn,)), Place("dp", "turn_1", 1, "my-run", "a", 1), Forget("my-run")):
        hidden = NAMES.hide(event)
        text = msgspec.json.encode(hidden).decode()
        for name in secret:
            assert name not in text
        for field in ("now", "dataplane", "turn", "model", "turn_class", "without", "body_bytes", "replica"):
            assert getattr(hidden, field, None) == getattr(event, field, None)


@pytest.mark.parametrize(
    ("timer", "of", "detail", "hidden"),
    [
        (Timer.TURN, "t", "", ("t", "")),
        (Timer.LOST, "dp", "s", ("dp", "s")),
        (Timer.RUN, "r\x1fp", "", (f"{NAMES.text('r')}\x1f{NAMES.text('p')}", "")),
        (Timer.IDS, "r", "", (NAMES.text("r"), "")),
        (Timer.RESERVE, "r", "turn_1\x1fm", (NAMES.text("r"), "turn_1\x1fm")),
        (Timer.RESERVE, "r", "resync-3-call-x\x1fm", (NAMES.text("r"), f"resync-3-{NAMES.text('call-x')}\x1fm")),
        (Timer.TWIN, "run", "rmy-run", ("run", f"r{NAMES.text('my-run')}")),
        (Timer.TWIN, "run", b"body".hex(), (NAMES.text("run"), NAMES.data(b"body").hex())),
        (Timer.TWIN, "caller", b"body".hex(), (NAMES.text("caller"), NAMES.data(b"body").hex())),
    ],
)
def test_what_a_timer_is_for_decides_what_of_it_is_a_name(timer: Timer, of: str, detail: str, hidden: tuple[str, str]) -> None:
    assert NAMES.due((1.0, int(timer), of, detail)) == (1.0, int(timer), *hidden)


def _structs(of: type, found: set[type]) -> None:
    """`of`, and the structs that its fields are made of."""
    if of in found or of in {SortedSet, policies.Policy} or not issubclass(of, Struct):
        return
    found.add(of)
    for hint in get_type_hints(of).values():
        for part in _parts(hint):
            _structs(part, found)


def _parts(hint: Any) -> list[type]:
    if isinstance(hint, type) and not get_args(hint):
        return [hint]
    return [part for inner in get_args(hint) for part in _parts(inner)]


def test_for_every_field_that_may_hold_text_somebody_has_said_whether_it_is_a_name() -> None:
    """A new one is hashed until it stands in RULES: that keeps it secret, but a rule that reads it would decide otherwise in a replay."""
    found: set[type] = set()
    for of in (*ALL, model.State, guard_model.Guarded):
        _structs(of, found)
    assert len(found) > 40
    open_ = [
        f"{of.__name__}.{name}"
        for of in found
        for name, hint in get_type_hints(of).items()
        if of is not model.Settings and not speechless(hint) and name not in RULES and f"{of.__name__}.{name}" not in RULES
    ]
    assert sorted(open_) == [], "add these to record_names.RULES: HIDDEN if they tell who somebody is or what was said, else CLEAR"


def test_every_rule_has_a_field() -> None:
    found: set[type] = set()
    for of in (*ALL, model.State, guard_model.Guarded):
        _structs(of, found)
    fields = {name for of in found for name in of.__struct_fields__} | {
        f"{of.__name__}.{name}" for of in found for name in of.__struct_fields__
    }
    assert sorted(set(RULES) - fields) == []
