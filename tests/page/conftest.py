"""What do the tests of the status page share: a real Chromium, and a page that tells what went wrong in it."""

import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest_asyncio

from tests.conftest import missing

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

WAIT_MS = 60_000
WIDE = (1440, 1000)


class Opened:
    """A page; `errors` are what its console and scripts complained of, `hosts` whom it asked."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", lambda message: self.errors.append(message.text) if message.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    async def until(self, condition: str, argument: Any = None) -> None:
        """`condition`: JavaScript, of `argument` if it is a function, as all must be that is evaluated again under the page's policy."""
        whole = condition if "=>" in condition else f"() => {condition}"
        await self.page.wait_for_function(whole, arg=argument, timeout=WAIT_MS)

    async def says(self, selector: str, text: str) -> None:
        """Wait until the element has the text in it."""
        await self.until("([at, text]) => (document.querySelector(at)?.innerText || '').includes(text)", [selector, text])

    async def text(self, selector: str) -> str:
        return await self.page.locator(selector).inner_text()


Open = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncGenerator["Browser"]:
    program = os.environ.get("LUFTPAUSE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("Chromium", "apt-get install chromium, or name it in LUFTPAUSE_CHROMIUM")
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        missing("playwright", "pip install -c constraints.txt -e '.[dev]'")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=2 * WAIT_MS)
        yield started
        await started.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def opened(browser: "Browser") -> Open:
    """Opens an address in a browser of its own, which keeps nothing."""

    @contextlib.asynccontextmanager
    async def open_page(url: str, *, dark: bool = False, size: tuple[int, int] = WIDE) -> AsyncGenerator[Opened]:
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        page = Opened(await context.new_page())
        page.page.set_default_timeout(WAIT_MS)
        try:
            await page.page.goto(url)
            yield page
        finally:
            await context.close()

    return open_page
