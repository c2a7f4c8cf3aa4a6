"""Do results stay below what clients take, and is nothing cut that needn't be?"""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.runtime.mcp_tools import views
from luftpause.runtime.mcp_tools.answers import answer
from luftpause.runtime.mcp_tools.fitting import RESULT_BYTES_MAX, fitting
from luftpause.runtime.ports import RunState, RunView, ServiceClass

EVENT_BYTES_MAX = 2**20  # of the SDK's client


def many(piece: str, number: int) -> str:
    return piece * number


TEXTS = st.builds(many, st.sampled_from(["a", "é", "語", "🤖", '"\n']), st.integers(0, 400_000))


def run(number: int, text: str = "", state: RunState = RunState.COMPLETED) -> RunView:
    shown = RunView(f"run_{number:026d}", state, "t" * 300, "a-model", ServiceClass.BATCH)
    return replace(shown, answer=text) if state is RunState.COMPLETED else replace(shown, error=text)


def size(runs: tuple[RunView, ...]) -> int:
    return len(answer(views.awaited_text(runs), views.runs_json(runs)).model_dump_json(by_alias=True).encode())


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_a_result_is_never_longer_than_clients_take(texts: list[str]) -> None:
    runs = [run(number, text) for number, text in enumerate(texts)]
    found = fitting(runs)
    assert size(found) <= EVENT_BYTES_MAX
    for before, after in zip(texts, found, strict=True):
        shown = after.answer or ""
        assert shown == before or before.startswith(shown.partition("\n[cut: ")[0])


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED])
def test_the_longest_is_cut_and_says_how_to_get_more(state: RunState) -> None:
    small, long = run(1, "s" * 200_000, state), run(2, "l" * 900_000, state)
    found = fitting([small, long])
    assert found[0] == small
    text = found[1].answer or found[1].error or ""
    assert text.endswith(" of 900,000 characters shown; await this handle alone for more]")
    assert text.startswith("l" * 150_000)
    (alone,) = fitting([long])
    assert len(alone.answer or alone.error or "") > 450_000
    assert (alone.answer or alone.error or "").endswith("; clients take no longer result]")


def test_a_thousand_short_answers_fit_whole() -> None:
    runs = tuple(run(number, "An answer of some length." * 2) for number in range(1_000))
    assert fitting(runs) == runs
    assert size(runs) <= RESULT_BYTES_MAX * 1.05


def test_too_many_runs_for_any_result_stay_whole() -> None:
    runs = tuple(run(number, "yes") for number in range(3_000))
    assert fitting(runs) == runs
    assert len(orjson.dumps(views.runs_json(runs))) > RESULT_BYTES_MAX
