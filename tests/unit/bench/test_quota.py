"""Does `luftpause bench quota` play fair: real clients, the same agents, and books that add up?"""

import asyncio
import json
import math
import random
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import anyio
import httpx
import pytest
from msgspec.structs import replace

from luftpause.kit.config_governor import GovernorConfig
from luftpause_bench.quota import over_http, virtual_time
from luftpause_bench.quota.bounds import judge
from luftpause_bench.quota.cells import Kept
from luftpause_bench.quota.clients import CLIENTS, told_wait
from luftpause_bench.quota.crew import Call, Crew
from luftpause_bench.quota.main import available, main
from luftpause_bench.quota.play import GOVERNOR, Cell, Figures, OfClass, Traffic, play
from luftpause_bench.quota.shown import tables
from luftpause_bench.quota.workload import GITHUB, LIGHT, SCENES, TOKENS, Agent, smaller

TINY = replace(smaller(GITHUB, 20), seconds=700.0, windows=1.0)


def play_here(policy: str, seed: int = 1) -> Figures:
    return play(Cell(TINY, policy, seed))


# ---- virtual time


def test_hours_pass_at_once_in_every_clock_and_the_real_ones_come_back() -> None:
    real = (time.time, time.monotonic, time.sleep, anyio.to_thread.run_sync)
    began = time.monotonic()

    async def hours() -> tuple[float, float, float, int]:
        first = (time.time(), time.monotonic(), asyncio.get_running_loop().time())
        await asyncio.sleep(7_200)
        time.sleep(30)  # noqa: ASYNC251 - packages do
        thread = await anyio.to_thread.run_sync(threading.get_ident)
        assert thread == await asyncio.get_running_loop().run_in_executor(None, threading.get_ident)
        return time.time() - first[0], time.monotonic() - first[1], asyncio.get_running_loop().time() - first[2], thread

    assert virtual_time.run(hours(), 1) == (pytest.approx(7_230), 7_230, 7_230, threading.get_ident())
    assert time.monotonic() - began < 60
    assert real == (time.time, time.monotonic, time.sleep, anyio.to_thread.run_sync)


def test_chance_is_the_seeds_and_what_was_before_comes_back() -> None:
    async def drawn() -> float:
        await asyncio.sleep(0)
        return random.random()

    random.seed(7)
    expected = [random.random() for _ in range(2)]
    random.seed(7)
    first = random.random()
    assert virtual_time.run(drawn(), 3) == virtual_time.run(drawn(), 3) != virtual_time.run(drawn(), 4)
    assert [first, random.random()] == expected


def test_a_mistake_in_the_play_is_raised_and_does_not_wait_for_the_end() -> None:
    async def fails() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    async def whole() -> None:
        await virtual_time.until(1e6, fails(), asyncio.sleep(1e5))

    with pytest.raises(ZeroDivisionError):
        virtual_time.run(whole(), 1)


# ---- agents


class Slow:
    """Answers after so many seconds; every third call fails."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls, self.most, self._now = seconds, list[Call](), 0, 0

    async def call(self, call: Call) -> bool:
        self.calls.append(call)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self.seconds)
        self._now -= 1
        return call.number % 3 != 2

    async def close(self) -> None: ...


def crew(client: Slow, *agents: Agent, seconds: float) -> list:
    scene = replace(GITHUB, agents=agents, seconds=seconds)

    async def whole() -> list:
        return await Crew(scene, client, 1).play()

    return virtual_time.run(whole(), 1)


def test_a_round_begins_when_the_one_before_is_over_and_open_calls_count_with_their_age() -> None:
    client = Slow(40)
    noted = crew(client, Agent("a", 1, 5, 2, round_seconds=100), seconds=290)
    assert [call.began for call in client.calls] == [0, 0, 40, 40, 80, 200, 200, 240, 240, 280]
    assert client.most == 2
    assert [(each.ended, each.seconds) for each in noted if each.ended != "served"] == [("failed", 40)] * 3 + [("open", 10)]
    assert len(noted) == 10


def test_an_agent_without_rounds_calls_again_after_a_pause() -> None:
    client = Slow(2)
    crew(client, Agent("a", 2, 1, 1, round_seconds=0, pause_seconds=3, tokens=(5, 9)), seconds=30)
    began = [call.began for call in client.calls]
    assert all(later - earlier == pytest.approx(5) for earlier, later in pairwise(began))
    assert {call.tokens for call in client.calls} <= set(range(5, 10))


def test_every_scene_wants_what_it_says() -> None:
    shares = {}
    for name, scene in SCENES.items():
        wanted = [scene.wanted(priority) for priority in range(3)]
        shares[name] = None if None in wanted else round(sum(wanted) / scene.capacity, 2)
    assert shares == {"github": 2.69, "github-kind": 2.69, "github-light": 0.94, "copilot80": 3.0, "llm-tpm": None}
    assert smaller(GITHUB, 10).wanted(0) == 288
    assert smaller(TOKENS, 10) == TOKENS


# ---- clients


@pytest.mark.parametrize("policy", [name for name in CLIENTS if name != "LiteLLM Router"])
def test_a_cell_gives_the_same_figures_again_and_its_books_add_up(policy: str) -> None:
    figures = play_here(policy)
    assert figures == play_here(policy)
    assert figures.refused > 0
    assert figures.in_flight_at_first > 0
    served = sum(each.served for each in figures.classes)
    assert served <= figures.sent - figures.refused  # those that were answered too late are open
    assert figures.goodput == served / TINY.capacity
    assert figures.goodput <= 1


def test_only_who_gives_up_loses_calls() -> None:
    failed = {name: sum(each.failed for each in play_here(name).classes) for name in CLIENTS if name != "LiteLLM Router"}
    assert failed["full jitter"] == failed["full jitter, Retry-After"] == 0
    assert failed["tenacity"] > 0


def test_the_governor_serves_p0_where_the_others_storm() -> None:
    governed, jitter = play_here(GOVERNOR), play_here("full jitter, Retry-After")
    assert governed == play_here(GOVERNOR)
    assert governed.classes[0].failed == 0
    assert governed.classes[0].p99 < jitter.classes[0].p99
    assert governed.refused <= governed.in_flight_at_first + governed.probes


def test_where_nothing_is_scarce_the_governor_holds_nobody() -> None:
    figures = play(Cell(replace(smaller(LIGHT, 10), seconds=700.0), GOVERNOR, 1))
    assert figures.refused == 0
    assert figures.hold_max == 0


def test_a_careful_client_reads_retry_after_else_the_reset_of_what_is_used_up() -> None:
    def response(**headers: str) -> httpx.Response:
        return httpx.Response(429, headers={name.replace("_", "-"): value for name, value in headers.items()})

    assert told_wait(response(retry_after="7.5", x_ratelimit_remaining="0", x_ratelimit_reset="9")) == 7.5
    assert told_wait(response(x_ratelimit_remaining="3", x_ratelimit_reset="9")) is None
    assert told_wait(response(x_ratelimit_remaining="0", x_ratelimit_reset=str(time.time() + 50))) == pytest.approx(50, abs=30)


# ---- figures


def test_recovery_is_a_call_sent_after_the_first_refusal_and_a_minute_without_another() -> None:
    traffic = Traffic(lambda *_: None, lambda: 0.0)
    assert traffic.recovery(100) is None
    traffic.refused = [10.0, 50.0]
    traffic.served = [(12.0, 9.0), (20.0, 15.0), (130.0, 125.0)]
    assert traffic.recovery(200) == 120
    traffic.served = [(12.0, 9.0)]
    assert traffic.recovery(200) == 190


def figures(p99: float = 1.0, served: int = 10, failed: int = 0, refused: int = 0, goodput: float = 1.0, hold: float = 0.0) -> Figures:
    p0 = OfClass(served, failed, 0, 10, 0.1, p99, p99)
    return Figures((p0, p0, p0), 100, refused, 3, 2, goodput, None, 1.0, 0.0, hold)


def missed(**cells: Figures) -> list[str]:
    found = {(scene.replace("_", "-"), GOVERNOR): [figures(), each] for scene, each in cells.items()}
    return [bound.name for bound in judge(found, ()) if not bound.held]


def test_the_worst_seed_is_judged() -> None:
    assert missed(github=figures(), github_kind=figures(), github_light=figures(), copilot80=figures(goodput=0.9)) == []
    assert missed(github=figures(p99=5.1)) == ["github: p99 of P0, s"]
    assert missed(github=figures(p99=math.nan)) == ["github: p99 of P0, s"]
    assert missed(github_kind=figures(served=9)) == ["github-kind: P0 calls served, of those wanted"]
    assert missed(github=figures(refused=6)) == ["github: refused, of those in flight at the first refusal and probes"]
    assert missed(llm_tpm=figures(goodput=0.96)) == ["llm-tpm: goodput"]
    assert missed(github_light=figures(hold=0.003)) == ["github-light: longest wait in the governor, s"]


def test_a_baseline_must_have_had_the_incident() -> None:
    found = {("github", "a"): [figures(p99=1_800)], ("github", "b"): [figures(served=5, failed=5)]}
    assert [bound.held for bound in judge(found, ("a", "b"))] == [True]
    assert [bound.held for bound in judge(found | {("github", "c"): [figures(p99=900)]}, ("a", "b", "c"))] == [False]


def test_tables_and_kept_cells_tell_what_was_played(tmp_path) -> None:
    cell = Cell(TINY, "full jitter", 1)
    kept = Kept(tmp_path / "cells.jsonl")
    assert kept.get(cell) is None
    kept.add(cell, figures())
    assert Kept(tmp_path / "cells.jsonl").get(cell) == figures()
    assert Kept(tmp_path / "cells.jsonl").get(replace(cell, seed=2)) is None
    who, how = tables(TINY, ["full jitter", "absent"], {("github", "full jitter"): [figures(), figures(p99=3.0)]})
    assert [row[0] for row in who.rows] == ["full jitter"]
    assert who.rows[0][6] == 2.0
    assert how.rows[0][1] == 2


def test_over_http_the_governors_windows_are_as_much_shorter_as_the_providers() -> None:
    scene, target = over_http.scene_of(5), over_http.section(GOVERNOR)["targets"]["provider"]
    core, points = target["scopes"]
    details = scene.provider.details()
    assert core["limit"] == details.limits[0].limit == scene.quota == 500
    assert core["window_seconds"] == details.limits[0].window_seconds / over_http.SPEED == 120
    assert details.hidden is not None
    assert points["limit"] * (points["burst"] + 1) == details.hidden.calls
    assert scene.capacity == 2.5 * 500
    assert scene.wanted(0) == 30 * 2 * 6
    GovernorConfig.model_validate(over_http.section(GOVERNOR))


def test_over_http_others_must_be_as_much_worse_as_in_virtual_time() -> None:
    def missed_of(**others: Figures) -> list[str]:
        found = {GOVERNOR: figures(p99=1.0)} | {name.replace("_", " "): each for name, each in others.items()}
        return [bound.name.partition(":")[0] for bound in over_http.judged(found) if not bound.held]

    assert missed_of(full_jitter=figures(p99=3.1), tenacity=figures(served=4, failed=6)) == []
    assert missed_of(full_jitter=figures(p99=2.9), tenacity=figures(failed=4)) == ["full jitter", "tenacity"]


# ---- the command


def test_a_part_is_played_once_then_shown_and_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scenes", "copilot80", "--policies", "full jitter, Retry-After", "--seeds", "1", "--jobs", "1", "--results", str(tmp_path)]
    assert main([*words, "--json", str(tmp_path / "first.json")]) == 0
    assert main([*words, "--kept", "--json", str(tmp_path / "again.json")]) == 0
    assert "1 of 1 cells were played before" in capsys.readouterr().err
    first, again = (json.loads((tmp_path / name).read_text()) for name in ("first.json", "again.json"))
    assert first["tables"] == again["tables"]
    assert first["quick"]
    assert first["parameters"]["copilot80"]["governor"]["targets"]["provider"]["profile"] == "copilot"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "cells", "first.json"]


def test_a_client_whose_package_is_missing_is_left_out_and_said_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "litellm", None)
    assert list(available(["tenacity", "LiteLLM Router"])) == ["tenacity"]
    assert "pip install litellm" in capsys.readouterr().err
