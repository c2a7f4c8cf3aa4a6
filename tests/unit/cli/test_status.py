"""What does `luftpause status` show, and what does its exit status say?"""

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from luftpause.cli import app as cli
from luftpause.cli.status_ask import Asker, Seen, UnreadableError
from luftpause.cli.status_show import _watch
from luftpause.cli.status_view import Marks, bar, problems, spark, view
from luftpause.kit.errors import LuftpauseError
from tests.support.crowd import Crowd, crowd
from tests.support.ports import a_quiet_port

TOKEN = "t" * 32


async def said(c: Crowd, *options: str) -> object:
    """The exit status; what it prints is on standard output."""
    return await asyncio.to_thread(cli.app, ("status", "--url", c.url, *options), standalone_mode=False)


async def seen_of(c: Crowd) -> Seen:
    asker = Asker(c.url, None, token_env=None, runtime_token_env=None)
    try:
        return await asyncio.to_thread(asker.ask)
    finally:
        asker.close()


def shown(seen: Seen, width: int = 140, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(view(seen, width, **options))
    return console.file.getvalue()  # type: ignore[attr-defined]


async def test_it_shows_replicas_what_is_held_and_why_and_who_has_the_turns(capsys: pytest.CaptureFixture[str]) -> None:
    async with crowd(("engine-a",)) as c:
        turns = [c.asks(f"run-{n}", caller="ann" if n < 20 else "bo") for n in range(30)]
        c.ends(turns[0], tools=("search",))
        assert await said(c) == 0
    printed = capsys.readouterr().out
    assert "24 in flight, 5 held; runs: 24 generating, 1 paused" in printed, printed
    (replica,) = [line.split() for line in printed.splitlines() if line.strip().startswith("engine-a ")]
    assert replica[1] == "healthy"
    assert "24 / 24" in " ".join(replica)
    (held,) = [line for line in printed.splitlines() if line.strip().startswith("run-25")]
    assert "reserved" in held or "capped" in held
    assert "room on engine-a" in held
    (ann,) = [line for line in printed.splitlines() if line.strip().startswith("ann")]
    assert "79%" in ann


async def test_json_is_the_status_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    async with crowd() as c:
        c.fill(5)
        assert await said(c, "--json") == 0
        assert json.loads(capsys.readouterr().out)["state"]["replicas"][2]["name"] == "engine-c"


async def test_what_needs_attention_is_said_first_and_makes_the_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    async with crowd() as c:
        c.breaks("engine-b")
        assert await said(c, "--once") == 1
    printed = capsys.readouterr().out
    assert printed.index("! engine-b is unhealthy") < printed.index("Replica")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--url", "localhost:5001"), "--url 'localhost:5001' is not an address"),
        (("--runtime", "ftp://x"), "--runtime 'ftp://x' is not an address"),
        (("--token-env", "LUFTPAUSE_NOT_SET"), "--token-env: the environment variable LUFTPAUSE_NOT_SET is not set"),
    ],
)
def test_a_wrong_option_is_named(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(LuftpauseError) as refused:
        cli.app(("status", *arguments), standalone_mode=False)
    assert named in refused.value.message


def test_where_nothing_answers_it_says_so_and_what_to_do() -> None:
    url = f"http://127.0.0.1:{a_quiet_port()}"
    with pytest.raises(UnreadableError) as refused:
        cli.app(("status", "--url", url), standalone_mode=False)
    assert f"nothing answers at {url}/status" in refused.value.message
    assert "luftpause up" in refused.value.message
    assert refused.value.gone


async def test_the_token_is_that_of_the_environment_and_a_wrong_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUFTPAUSE_TOKEN", "client" + TOKEN)
    monkeypatch.setenv("LUFTPAUSE_CLUSTER_TOKEN", TOKEN)
    monkeypatch.setenv("WRONG", "w" * 32)
    async with crowd() as c:
        assert await said(c, "--once") == 0
        with pytest.raises(UnreadableError, match="wants another token: set LUFTPAUSE_CLUSTER_TOKEN or LUFTPAUSE_TOKEN, or name"):
            await said(c, "--once", "--token-env", "WRONG")
        monkeypatch.delenv("LUFTPAUSE_CLUSTER_TOKEN")
        monkeypatch.delenv("LUFTPAUSE_TOKEN")
        with pytest.raises(UnreadableError, match="wants a token"):
            await said(c, "--once")


async def test_a_scheduler_is_not_taken_for_a_runtime() -> None:
    async with crowd() as c:
        with pytest.raises(UnreadableError, match="is not a runtime"):
            await said(c, "--runtime", c.url)


class Script(Asker):
    """Answers, or raises, one after the other; then Ctrl-C."""

    def __init__(self, *answers: Seen | Exception) -> None:
        self.answers: Iterator[Seen | Exception] = iter(answers)

    def ask(self) -> Seen:
        answer = next(self.answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def seen() -> Seen:
    async with crowd() as c:
        c.fill(8)
        return await seen_of(c)


def watched(script: Script, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    console = Console(file=io.StringIO(), width=120, height=60, force_terminal=True)
    _watch(console, script, seen, 1)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_while_it_watches_a_scheduler_may_go_and_come_back(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = UnreadableError("nothing answers at http://s", gone=True)
    printed = watched(Script(seen, gone, seen), seen, monkeypatch)
    assert printed.count("lost for 0 s, asking again: nothing answers at http://s") == 1
    assert printed.rindex("engine-a") > printed.rindex("lost for")


def test_while_it_watches_a_refusal_ends_it(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableError, match="another token"):
        watched(Script(UnreadableError("it wants another token", gone=False)), seen, monkeypatch)


def changed(seen: Seen, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    status = json.loads(json.dumps(seen.status))
    change(status["state"])
    return status


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda core: core.update(placing=False), "nothing is placed yet"),
        (lambda core: core.update(dataplanes=[]), "no dataplane is connected"),
        (lambda core: core["dataplanes"][0].update(connected=False), "dataplane dataplane-1 is not connected"),
        (lambda core: core.update(replicas=[]), "no replica is configured"),
        (lambda core: core["replicas"][0].update(health="unknown"), "engine-a has not answered a probe yet"),
        (lambda core: core["replicas"][0].update(load="unknown"), "engine-a no longer reports its load"),
        (lambda core: core["replicas"][1].update(suspected_by=["d1", "d2"]), "d1, d2 could not connect to engine-b"),
        (lambda core: core["replicas"][1].update(unusable_by=["d1"]), "d1 lacks the key of engine-b"),
    ],
)
def test_everything_that_needs_attention_is_named(seen: Seen, change: Callable[[dict[str, Any]], object], named: str) -> None:
    assert problems(seen.status) == []
    (found,) = problems(changed(seen, change))
    assert named in found


def test_a_ledger_that_is_away_and_a_bill_that_is_not_paid_need_attention(seen: Seen) -> None:
    unpaid = {"name": "openai", "breaker": {"mode": "disabled"}}
    found = problems({**seen.status, "quota": {"targets": [unpaid], "store": {"mode": "down"}}})
    assert [each.partition(":")[0] for each in found] == ["the shared ledger of quotas is down", "quota openai is out of credit"]


def test_a_bar_shows_both_classes_what_is_kept_and_the_cap() -> None:
    replica = {"in_flight_by_class": {"interactive": 6, "batch": 3}, "paused_interactive": 1, "cap": 12}
    assert bar(replica, 12, Marks(ascii_only=True)).plain == "#" * 12 + "=" * 6 + "+" * 2 + "." * 4 + "|"
    assert bar({**replica, "cap": None}, 20, Marks(ascii_only=True)).plain == "#" * 7 + "=" * 4 + "+" + "." * 12


def test_a_spark_shows_something_wherever_something_was() -> None:
    assert spark([0, 1, 100, 50], Marks(ascii_only=False)) == "▁▂█▅ 50"


@pytest.mark.parametrize("width", [140, 80, 60, 40, 34])
def test_on_a_narrow_terminal_names_stay_whole_and_bars_go(seen: Seen, width: int) -> None:
    lines = shown(seen, width, ascii_only=True).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.split()[:2] == ["in", "flight"] and set(line.split()[2]) <= set("_.-=+*#@") for line in lines) == 1
    header, row = next((header.split(), row.split()) for header, row in pairwise(lines) if header.split()[:1] == ["Replica"])
    assert row[:2] == [seen.status["state"]["replicas"][0]["name"], "healthy"]
    assert "/" in row
    assert header[2:4] == ["In", "flight"]
    assert ("Running" in header) is (width > 34)
    assert any(set(word) <= set("#=+.|") for word in row) is (width >= 80)


def test_quotas_and_runs_are_shown_where_there_are_some(seen: Seen) -> None:
    scope = {"name": "requests", "light": "amber", "free": 12.0, "limit": 40.0, "capacity": 80.0, "renews_seconds": 61.0}
    target = {
        "name": "copilot", "breaker": {"mode": "half_open"}, "leases": {"out": 3}, "shared_pool": {"waiting": [0, 2, 5]},
        "traffic_light": {"scopes": [scope]},
    }  # fmt: skip
    costs = {"turns": 7, "tool_calls": 9, "prompt_tokens": 1234, "completion_tokens": 55}
    run = {"handle": "r1", "state": "Running", "doing": "", "parent": None, "children": ["r2"], "subtree": costs, "pending_approvals": []}
    waits = [{"id": "x", "tool": "delete_file", "asked_at": 1.0}]
    child = {**run, "handle": "r2", "state": "AwaitingApproval", "parent": "r1", "children": [], "pending_approvals": waits}
    printed = shown(Seen({**seen.status, "quota": {"targets": [target]}}, seen.samples, {"runs": [run, child]}), ascii_only=True)
    (quota,) = [line.split() for line in printed.splitlines() if "copilot" in line]
    narrow = {**target, "name": "copilot-of-all", "breaker": {"mode": "pre_emptive_open"}, "leases": {"out": 100}}
    narrow["traffic_light"] = {"scopes": [{**scope, "free": 1_200_000.04, "capacity": 2_000_000.0, "renews_seconds": 3_594.0}]}
    tight = shown(Seen({**seen.status, "quota": {"targets": [narrow]}}, seen.samples), 80, ascii_only=True)
    (row,) = [line.split() for line in tight.splitlines() if line.startswith(" copi")]
    assert row[2:] == ["amber", "1200000", "2000000", "59", "min", "54", "s", "pre_emptive", "100", "7"]
    assert quota == ["copilot", "requests", "amber", "12", "80", "1", "min", "01", "s", "half_open", "3", "7"]
    lines = printed.splitlines()
    (parent,) = [number for number, line in enumerate(lines) if line.strip().startswith("r1 ")]
    assert lines[parent + 1].startswith("   r2")
    assert "approval of delete_file" in lines[parent + 1]
    assert lines[parent].split()[-4:] == ["7", "9", "1234", "55"]
    assert printed.isascii()
