"""How does the page look? `python -m tests.page.screenshots FOLDER` writes it down, light and dark, small enough for the docs; two minutes.

The scheduler is a real one, the agents are made up: so it needs hardly any processor time, and looks the same each time.
"""

import asyncio
import io
import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image

from tests.support.crowd import CALLERS, TOOLS, Crowd, crowd

if TYPE_CHECKING:
    from playwright.async_api import Browser

AGENTS = 56
SECONDS = 110
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def agent(c: Crowd, number: int, chance: random.Random) -> None:
    """Turns with tools between them, then a rest, for ever."""
    await asyncio.sleep(25 * chance.random())
    while True:
        turn = c.asks(f"agent-{number:02}", batch=number % 4 != 0, caller=CALLERS[number % len(CALLERS)])
        while not c.running.host.state.turns[turn].replica:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.3 + 1.6 * chance.random())
        c.streams(turn)
        await asyncio.sleep(2 + 9 * chance.random())
        if chance.random() < 0.85:
            c.ends(turn, tools=(TOOLS[chance.randrange(len(TOOLS))],))
            await asyncio.sleep(1 + chance.random() * (12 if chance.random() < 0.8 else 40))
        else:
            c.ends(turn)
            await asyncio.sleep(15 + 20 * chance.random())


async def shots(browser: "Browser", url: str, folder: Path, name: str) -> None:
    for scheme in SCHEMES:
        context = await browser.new_context(viewport={"width": 1360, "height": 1000}, color_scheme=scheme)
        page = await context.new_page()
        await page.goto(url)
        await page.wait_for_function("() => document.querySelector('#link').innerText === 'live'")
        await page.wait_for_timeout(4500)  # two more polls: rates
        picture = await page.screenshot()
        await context.close()
        Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(folder / f"{name}-{scheme}.png", optimize=True)


async def main(folder: Path) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        async with crowd(places=10) as c:
            chance = random.Random(3)
            agents = [asyncio.create_task(agent(c, number, chance)) for number in range(AGENTS)]
            await asyncio.sleep(SECONDS)
            await shots(browser, c.url, folder, "status")
            for each in agents:
                each.cancel()
        async with crowd() as c:
            c.fill(1000)
            await shots(browser, c.url, folder, "status-1000-runs")
        await browser.close()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
