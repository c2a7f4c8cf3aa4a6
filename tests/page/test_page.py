"""What does the status page show in a real browser, and does everybody get it?"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from luftpause.kit.quota_port import Granted
from tests.page.conftest import Open, Opened
from tests.support.crowd import Crowd, crowd
from tests.support.ports import a_quiet_port

pytestmark = pytest.mark.asyncio(loop_scope="package")
RUNS = 1000


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def many() -> AsyncGenerator[Crowd]:
    """A thousand runs, most of which wait."""
    async with crowd() as c:
        c.fill(RUNS)
        yield c


async def problems(page: Opened) -> list[str]:
    """What axe finds against WCAG 2.2 AA and its best practices: names, roles, order, contrast …"""
    from axe_playwright_python.async_playwright import Axe

    found: dict[str, Any] = (await Axe().run(page.page)).response
    return [f"{each['id']}: {node['html'][:160]} {node['failureSummary']}" for each in found["violations"] for node in each["nodes"]]


async def loaded(page: Opened) -> None:
    await page.says("#link", "live")
    await page.until("document.querySelectorAll('#timeline .vt-space .vt-row:not([hidden])').length > 5")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_is_readable_by_everybody_without_an_error_or_a_request_to_somebody_else(many: Crowd, opened: Open, dark: bool) -> None:
    async with opened(many.url, dark=dark) as page:
        await loaded(page)
        assert await problems(page) == []
        assert page.errors == []
        assert page.hosts == {many.url.removeprefix("http://")}


async def test_it_shows_the_replicas_what_is_held_the_callers_and_the_counters(many: Crowd, opened: Open) -> None:
    async with opened(many.url) as page:
        await loaded(page)
        for name in many.names:
            assert re.search(rf"{name}\s+healthy\s+24 / 24\s", await page.text("#replica-table"))
        meters = page.page.locator("#replica-table .meter")
        assert re.fullmatch(
            r"24 in flight, cap 24: \d+ interactive, \d+ batch, \d+ places? kept for paused runs",
            str(await meters.first.get_attribute("aria-label")),
        )
        held = await page.text("#held-note")
        assert re.fullmatch(r"the oldest 500 of \d+", held)
        assert "capped" in await page.text("#reasons")
        assert "room on engine-a or engine-b or engine-c" in await page.text("#held-table")
        for caller in ("ann", "dee", "nightly"):
            assert caller in await page.text("#caller-table")
        assert "turns placed" in await page.text("#counter-table") or "placed" in await page.text("#counter-table")
        assert "TurnRequested" in await page.text("#event-table")


async def test_a_thousand_runs_are_there_although_few_are_in_the_page(many: Crowd, opened: Open) -> None:
    async with opened(many.url) as page:
        await loaded(page)
        table = page.page.get_by_role("table", name="Runs and what they do")
        assert await table.get_attribute("aria-rowcount") == str(RUNS + 1)
        assert await table.locator(".vt-space .vt-row").count() < 40
        assert await table.get_by_role("row").nth(1).get_attribute("aria-rowindex") == "2"
        assert "run-0999" in await page.text("#timeline")
        await page.page.locator("#timeline .vt-body").evaluate("each => each.scrollTop = each.scrollHeight")
        await page.says("#timeline", "run-0000")
        assert await table.locator(".vt-space .vt-row").count() < 40
        counts = [int(each) for each in re.findall(r"\d+", (await page.text("#filters")).replace(",", ""))]
        assert sum(counts) == RUNS


async def test_runs_are_found_by_phase_and_by_name(many: Crowd, opened: Open) -> None:
    async with opened(many.url) as page:
        await loaded(page)
        await page.page.get_by_label("Find a run, caller or model").fill("run-0042")
        await page.until("document.querySelector('#timeline .vt').getAttribute('aria-rowcount') === '2'")
        await page.page.get_by_label("Find a run, caller or model").fill("nobody")
        await page.says("#no-runs", "No run fits")
        await page.page.get_by_label("Find a run, caller or model").fill("")
        held = page.page.get_by_role("group", name="Show runs that are").get_by_role("button", name="held")
        number = int(re.sub(r"\D", "", await held.inner_text()))
        await held.click()
        assert await held.get_attribute("aria-pressed") == "false"
        await page.until("n => document.querySelector('#timeline .vt').getAttribute('aria-rowcount') === String(n)", RUNS + 1 - number)


async def test_a_keyboard_is_enough(many: Crowd, opened: Open) -> None:
    async with opened(many.url) as page:
        await loaded(page)
        keys = page.page.keyboard
        await keys.press("Tab")
        assert await page.page.evaluate("document.activeElement.textContent") == "Skip to content"
        await page.page.locator("#timeline .vt-body").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
            await keys.press(key)
        await page.says("#detail", "run-0997")
        assert "Caller" in await page.text("#detail")
        for _ in range(5):
            await keys.press("PageDown")
        assert await page.page.evaluate("document.activeElement.textContent") == "run-0947"
        await keys.press("End")
        assert await page.page.evaluate("document.activeElement.textContent") == "run-0000"
        await page.page.get_by_role("button", name="Close").click()
        assert await page.page.locator("#detail").is_hidden()


async def test_what_a_run_does_changes_while_one_looks(opened: Open) -> None:
    async with crowd() as c, opened(c.url) as page:
        await page.says("#no-runs", "No run has been seen yet")
        turn = c.asks("run-x", caller="zoe")
        await page.says("#timeline", "run-x")
        await page.says("#timeline", "prefill · engine-")
        c.streams(turn)
        await page.says("#timeline", "decode · engine-")
        c.ends(turn, tools=("search",))
        await page.says("#timeline", "in a tool · search")
        await page.page.locator("#timeline button").first.click()
        await page.says("#detail", "in a tool (search)")
        did = await page.page.locator("#detail li span").all_inner_texts()
        assert [each.partition(" · ")[0] for each in did] == ["in a tool", "decode", "prefill"]
        assert page.errors == []


async def test_what_needs_attention_stands_first_and_is_announced_once(opened: Open) -> None:
    async with crowd() as c, opened(c.url) as page:
        await page.says("#link", "live")
        assert await page.page.locator("#notices").is_hidden()
        c.breaks("engine-b")
        await page.says("#notices", "engine-b is unhealthy")
        assert "engine-b is unhealthy" in str(await page.page.locator("#live").text_content())
        assert await page.page.locator("#live").get_attribute("aria-live") == "polite"
        assert await problems(page) == []


async def test_quotas_are_shown_with_their_light_what_is_left_and_who_waits(opened: Open) -> None:
    governor = {"targets": {"copilot": {"profile": "copilot"}, "github": {"profile": "github"}}}
    async with crowd(governor=governor) as c, opened(c.url) as page:
        port = c.running.governing.port
        granted = await port.reserve("github", "want", caller="ann", priority=1, cost=None, lease_seconds=60, wait_seconds=0, retry=False)
        assert isinstance(granted, Granted), granted
        await page.says("#quota-cards", "ann 1")
        cards = page.page.get_by_role("article")
        assert [(await card.get_attribute("aria-label")) for card in await cards.all()] == ["copilot", "github"]
        github = await cards.nth(1).inner_text()
        assert "free" in github
        assert "4,999 of 5,000" in github
        assert "1 (P0 0, P1 1, P2 0)" in github
        assert await problems(page) == []
        assert page.errors == []


async def test_the_colours_are_those_of_the_system_until_somebody_chooses(many: Crowd, opened: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with opened(many.url, dark=True) as page:
        dark = await page.page.evaluate(ground)
        button = page.page.get_by_role("button", name="Colours: as the system")
        await button.click()
        assert await page.page.get_by_role("button", name="Colours: light").is_visible()
        light = await page.page.evaluate(ground)
        assert light != dark
        await page.page.reload()
        assert await page.page.evaluate(ground) == light


async def test_on_a_telephone_nothing_is_wider_than_the_screen(many: Crowd, opened: Open) -> None:
    async with opened(many.url, size=(390, 800)) as page:
        await loaded(page)
        assert await page.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert await problems(page) == []


# ---- when something is not as it should be ------------------------------------------------------------------------


async def test_a_scheduler_that_goes_and_comes_back_is_waited_for(opened: Open) -> None:
    port = a_quiet_port()
    async with contextlib.AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(contextlib.AsyncExitStack())
        c = await scheduler.enter_async_context(crowd(port=port))
        page = await stack.enter_async_context(opened(c.url))
        c.fill(20)
        await loaded(page)
        await scheduler.aclose()
        await page.says("#banner", "Lost the scheduler for")
        assert await page.text("#link") == "lost, retrying"
        assert "run-0019" in await page.text("#timeline")
        async with crowd(port=port) as again:
            again.asks("run-after")
            await page.says("#link", "live")
            await page.says("#timeline", "run-after")
            assert "run-0019" not in await page.text("#timeline")
            assert await page.page.locator("#banner").is_hidden()
        assert [each for each in page.errors if "Failed to load resource" not in each] == []


async def test_a_token_is_asked_for_kept_for_the_tab_and_shown_to_the_scheduler_only(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "t" * 32
    monkeypatch.setenv("LUFTPAUSE_TOKEN", token)
    shown: list[str] = []

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 401 Unauthorized\r\naccess-control-allow-origin: *\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(runtime, "127.0.0.1", 0) as server, crowd() as c:
        c.fill(20)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened(f"{c.url}/?runtime={address}") as page:
            dialog = page.page.get_by_role("dialog")
            await dialog.get_by_label("Token").wait_for()
            assert await problems(page) == []
            assert {await answer(page, "wrong" * 5) for _ in range(2)} <= {c.url, address}
            asked = set[str]()
            while asked != {c.url, address}:
                await page.until("document.querySelector('#ask').open")
                asked.add(await answer(page, token if c.url in await page.text("#ask-why") else "r" * 20))
            await loaded(page)
            await page.page.reload()
            await loaded(page)
    assert shown
    assert not [request for request in shown if token in request]


async def answer(page: Opened, token: str) -> str:
    """Give a token as soon as one is wanted; the origin that asked for it."""
    await page.until("document.querySelector('#ask').open")
    why = await page.text("#ask-why")
    await page.page.get_by_label("Token", exact=True).fill(token)
    await page.page.keyboard.press("Enter")
    found = re.search(r"http://[\d.:]+\d", why)
    assert found is not None
    return found[0]


async def test_who_has_no_token_is_not_asked_again_and_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUFTPAUSE_TOKEN", "t" * 32)
    async with crowd() as c, opened(c.url) as page:
        c.fill(20)
        await page.page.get_by_role("button", name="Not now").click()
        await page.says("#banner", "No data: a token is needed")
        assert await page.page.get_by_role("dialog").is_hidden()
        await page.page.get_by_role("button", name="Give a token").click()
        await page.page.get_by_label("Token", exact=True).fill("t" * 32)
        await page.page.get_by_role("button", name="Use it").click()
        await loaded(page)
        await page.page.get_by_role("button", name="Forget token").click()
        await page.page.get_by_role("dialog").wait_for()


async def test_a_runtime_that_cannot_be_shown_is_said_with_what_to_do(many: Crowd, opened: Open) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        silent = f"http://127.0.0.1:{a_quiet_port()}"
        closed = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        cases = {
            "127.0.0.1": "“127.0.0.1” is not an address; name it like http://127.0.0.1:7000",
            "ftp://x": "“ftp://x” is not an http address",
            "http://a:b@127.0.0.1": "a name or password in it",
            silent: f"nothing answers at {silent}",
            closed: f'answers, but not to this page: add "{many.url}" to runtime.status_origins',
            many.url: f"{many.url} is a scheduler; a runtime listens on port 7000",
        }

        async def check(given: str, said: str) -> None:
            async with opened(f"{many.url}/?runtime={given}") as page:
                await page.says("#tree-banner", said)
                await page.says("#link", "live")
                assert await page.page.get_by_label("Runtime", exact=True).input_value() == given

        await asyncio.gather(*(check(given, said) for given, said in cases.items()))
