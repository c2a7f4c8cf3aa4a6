"""Does the benchmark on a real llama.cpp count what came back, and refuse to report nothing?"""

import json
from random import Random

import httpx
import pytest
from msgspec.structs import replace

from luftpause.cli.load_turn import Turn, TurnFailedError
from luftpause.kit.errors import LuftpauseError
from luftpause_bench import llama_agents, llama_guard
from luftpause_bench.llama_agents import Agents, Answered, Parameters, Run, conversation, whole_calls

WHOLE = '{"shelf": "north"}'


def call(arguments: str, id_: str = "a") -> dict[str, object]:
    return {"id": id_, "type": "function", "function": {"name": "lookup", "arguments": arguments}}


def turn(prompt: int, cached: int = 0) -> Turn:
    return Turn(prompt_tokens=prompt, cached_tokens=cached)


def sample(way: str, runs: list[Run]) -> llama_guard.Sample:
    return llama_guard.sample(way, 0, runs, 10.0, 40.0)


def table_row(samples: list[llama_guard.Sample], way: str) -> dict[str, object]:
    report = llama_guard.report_of(Parameters(), samples, 1.0, quick=True)
    row = next(row for row in report.tables[0].rows if row[0] == way)
    return dict(zip((column.name for column in report.tables[0].columns), row, strict=True))


RUNS = [
    Run("batch", 1.0, 12.0, complete=True, turns=[Answered(turn(200, 100), 5.0, 0), Answered(turn(300, 190), 12.0, 200)]),
    Run("batch", 5.0, 35.0, complete=False, turns=[Answered(turn(100, 60), 35.0, 0)]),
    Run("interactive", 20.0, 26.0, complete=True, turns=[Answered(turn(100, 50), 22.0, 0), Answered(turn(200, 89), 26.0, 100)]),
    Run("interactive", 30.0, turns=[Answered(turn(100, 50), 39.0, 0), Answered(turn(100, 50), 41.0, 100)]),
]


# ---- agents ---------------------------------------------------------------------------------------------------------


def test_runs_share_nothing_but_the_words_they_are_made_of() -> None:
    one, two = (conversation(Random(seed), Parameters()) for seed in (1, 2))
    assert one != two
    assert [len(each) for each in (one, two)] == [1, 1]
    assert conversation(Random(1), Parameters()) == one


@pytest.mark.parametrize("cut", ['{"shelf": "no', "", "7"])
def test_a_call_that_was_cut_does_not_go_back(cut: str) -> None:
    calls = {1: call(cut, "b"), 0: call(WHOLE, "a")}
    assert [each["id"] for each in whole_calls(Turn(calls=calls))] == ["a"]
    assert not whole_calls(Turn(text="It is old."))


async def test_a_run_is_complete_once_it_made_all_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    async def ask(_client: httpx.AsyncClient, body: dict[str, object], _headers: object) -> Turn:
        asked.append(json.loads(json.dumps(body)))
        if len(asked) > 4:
            raise TurnFailedError("HTTP 503")
        calls = {0: call(WHOLE)} if "logit_bias" in body and len(asked) < 4 else {}
        return Turn(prompt_tokens=100 * len(asked), calls=calls)

    monkeypatch.setattr(llama_agents, "ask", ask)
    parameters = Parameters(interactive=0, batch=1, tool_seconds=0.0, tool_calls=(2, 2))
    agents = Agents(parameters, "http://127.0.0.1:1", 0)
    with pytest.raises(LuftpauseError, match="a turn failed: HTTP 503"):
        await agents.play(60)
    one, two, _ = agents._runs
    assert (one.complete, [each.before for each in one.turns]) == (True, [0, 100, 200])
    assert (two.complete, len(two.turns), two.ended >= one.ended) == (False, 1, True)
    assert [message["role"] for message in asked[2]["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [(body["max_tokens"], "logit_bias" in body) for body in asked[:3]] == [(32, True), (32, True), (16, False)]


# ---- what it comes to -----------------------------------------------------------------------------------------------


def test_turns_and_runs_count_that_ended_in_the_window() -> None:
    found = sample("guard", RUNS)
    assert (found.seconds, found.turns, found.prompt_tokens, found.cached_tokens) == (30.0, 5, 800, 439)
    assert (found.back, found.kept) == (2, 1)
    assert (found.complete, found.cut_short) == ({"interactive": [6.0], "batch": [11.0]}, 1)


def test_the_table_says_what_came_back_and_leaves_empty_what_is_not_known() -> None:
    samples = [sample("guard", RUNS), replace(sample("guard", RUNS[:2]), repeat=1), sample("direct", RUNS[1:2]), sample("original", RUNS)]
    row = table_row(samples, "guard")
    assert (row["turns"], row["came back"], row["found their prefix"], row["runs"], row["cut short"]) == (7.0, 3, 200 / 3, 3, 2)
    assert (row["interactive"], row["batch"]) == (1.0, 2.0)
    direct = table_row(samples, "direct")
    assert (direct["found their prefix"], direct["p50"], direct["batch"]) == (None, None, 0.0)


@pytest.mark.parametrize(("cached", "held"), [(60, True), (59, False)])
def test_guard_must_find_as_much_as_direct(cached: int, held: bool) -> None:
    direct, guard = (
        sample(way, [Run("batch", 1.0, 20.0, complete=True, turns=[Answered(turn(100, of), 20.0, 0)])])
        for way, of in (("direct", 60), ("guard", cached))
    )
    report = llama_guard.report_of(Parameters(), [direct, replace(direct, way="original"), guard], 1.0, quick=True)
    assert [bound.held for bound in report.bounds] == [held]


def test_figures_of_nothing_are_refused_with_what_can_be_done() -> None:
    empty = replace(sample("original", []), core=0.125)
    with pytest.raises(LuftpauseError, match=r"original: no run completed in 60 s, in which the engine had 0.12 of a core.*--window"):
        llama_guard.require(0, [empty, empty], "run completed")
    llama_guard.require(1, [empty], "run completed")


def test_quick_takes_less_than_a_minute_and_the_whole_less_than_six() -> None:
    def cells(of: Parameters) -> float:
        return 3 * of.repeats * (of.warm_up_seconds + of.window_seconds)

    assert cells(llama_guard.QUICK) < 70
    assert cells(Parameters()) < 335


def test_options_change_the_parameters_and_nonsense_is_told() -> None:
    options = llama_guard._parser().parse_args(["--quick", "--window", "60", "--repeats", "3"])
    made = llama_guard._parameters(options)
    assert (made.window_seconds, made.repeats, made.batch) == (60.0, 3, llama_guard.QUICK.batch)
    with pytest.raises(LuftpauseError, match="--warm-up -1 can't be; give more than 0"):
        llama_guard._parameters(llama_guard._parser().parse_args(["--warm-up", "-1"]))
