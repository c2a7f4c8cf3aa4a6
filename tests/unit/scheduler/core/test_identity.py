"""Which ids say something by themselves, and how many are kept?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    RunEnded,
    ToolCallSeen,
    TurnFinished,
    TurnRequested,
)
from luftpause.scheduler.core.identity import ID_CHARS_MIN, says_nothing
from luftpause.scheduler.core.model import Settings, State


@pytest.mark.parametrize(
    "id_",
    ["call_0", "call_12345", "functions.search:0", "functions.get_weather2:13", "call_get_weather_in_paris_17", "toolu7", "D681PevKs"],
)
def test_short_ids_and_plain_counters_say_nothing(id_: str) -> None:
    assert says_nothing(id_)


@pytest.mark.parametrize(
    "id_",
    [
        "call_9f8e7d6c5b4a3f2e1d0c9b8a",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-tool-4f1d0c2b7a9e4c6d8b3a5f7e9d1c2b3a",
        "call_AbCdEfGhIjKlMnOpQrStUv12",
    ],
)
def test_long_random_ids_say_who_they_are(id_: str) -> None:
    assert not says_nothing(id_)


def started(settings: Settings) -> State:
    state = initial(settings, (ReplicaSpec("a", "http://a", models=("m",)),), 0.0)
    return decide(state, ReplicaProbed(0.0, "a", ProbeOutcome.OK, Load(0, 0))).state


def test_the_newest_ids_of_a_run_are_kept_and_no_more() -> None:
    state = started(Settings(start_grace_seconds=0.0, ids_per_run_max=256))
    state = decide(state, TurnRequested(1.0, "d", "t", 1, "r", "m")).state
    ids = [f"call_{number:x}abcdefghijklmnop" for number in range(300)]
    for number, id_ in enumerate(ids):
        state = decide(state, ToolCallSeen(1.0 + number / 1000, "d", "t", (id_,))).state
    assert len(state.ids) == 256
    kept = {key[2] for key in state.ids}
    assert ids[-1] in kept
    assert ids[0] not in kept


def test_an_id_that_too_many_runs_carried_stays_known_as_shared() -> None:
    state = started(Settings(start_grace_seconds=0.0, runs_per_id_max=2, burst_turns_max=0))
    shared = ("call_9f8e7d6c5b4a3f2e1d0c9b8a",)
    for number in range(5):
        state = decide(
            state, TurnRequested(1.0, "d", f"t{number}", 1, "", "m", run=f"r{number}", head_digest=b"%d" % number, tool_call_ids=shared)
        ).state
        state = decide(state, TurnFinished(2.0, "d", f"t{number}", 1)).state
    assert [len(known.sightings) for known in state.ids.values()] == [2]
    asked = decide(state, TurnRequested(3.0, "d", "last", 1, "fresh", "m", head_digest=b"other", tool_call_ids=shared))
    assert [decision.run for decision in asked.decisions] == ["fresh"]
    one_left = decide(state, RunEnded(3.0, "r3")).state
    asked = decide(one_left, TurnRequested(3.0, "d", "last", 1, "fresh", "m", head_digest=b"other", tool_call_ids=shared))
    assert [decision.run for decision in asked.decisions] == ["fresh"], "others have carried it, though they are not kept"


@given(st.text("aZ_:-9071\n\u00e9\u00b2", max_size=32) | st.from_regex(r"[a-z_:.\-]{0,24}[0-9]{0,11}", fullmatch=True))
def test_an_id_that_ends_in_a_counter_says_nothing(id_: str) -> None:
    counter = re.fullmatch(r"[^0-9A-Z]*[0-9]{1,9}|.*[^0-9A-Za-z][0-9]{1,9}", id_, re.DOTALL)
    assert says_nothing(id_) == (len(id_) < ID_CHARS_MIN or counter is not None)
