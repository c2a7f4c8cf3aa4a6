"""Is the page served with what it needs, allowed nothing else, and is everything that it loads from here?"""

import re
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from luftpause.kit.auth import Tokens
from luftpause.kit.config import SchedulerConfig
from luftpause.scheduler.door import Door
from luftpause.scheduler.static import PREFIX, Pages, origin

PAGE = Path(__file__).parents[3] / "services" / "luftpause" / "scheduler" / "page"
OWN = [path for path in PAGE.iterdir() if path.suffix in {".js", ".css", ".html"} and not path.name.startswith("uplot")]


def client(token: str = "") -> httpx.AsyncClient:
    app, pages = Starlette(), Pages()
    app.add_route("/", pages.index)
    app.add_route(f"{PREFIX}{{name}}", pages.file)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(Door(app, SchedulerConfig(), Tokens(token), metrics_open=False)), base_url="http://127.0.0.1:5001"
    )


async def test_the_page_and_what_it_loads_need_no_token() -> None:
    async with client("t" * 32) as http:
        html = await http.get("/")
        loaded = re.findall(r'(?:src|href)="(page/[^"]+)"', html.text)
        assert {"page/main.js", "page/style.css", "page/uplot.iife.min.js", "page/icon.svg"} <= set(loaded)
        for name in loaded:
            answer = await http.get(f"/{name}")
            assert answer.status_code == 200, name
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-type"].partition(";")[0] in {"text/javascript", "text/css", "image/svg+xml"}


async def test_every_module_that_a_module_imports_is_there() -> None:
    async with client() as http:
        for path in PAGE.glob("*.js"):
            for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
                assert (await http.get(f"{PREFIX}{name}")).status_code == 200, f"{path.name} imports {name}"


async def test_what_is_known_already_is_not_sent_again() -> None:
    async with client() as http:
        first = await http.get("/page/style.css")
        again = await http.get("/page/style.css", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert first.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "static.py", "..%2fstatus.py", "%2e%2e%2fstatus.py"])
async def test_nothing_else_is_served(name: str) -> None:
    async with client() as http:
        assert (await http.get(f"/page/{name}")).status_code == 404


async def policy(http: httpx.AsyncClient, **parameters: str) -> dict[str, str]:
    header = (await http.get("/", params=parameters)).headers["content-security-policy"]
    return dict(each.strip().partition(" ")[::2] for each in header.split(";"))


async def test_the_policy_allows_this_origin_and_the_runtime_that_was_named_and_no_other() -> None:
    async with client() as http:
        strict = await policy(http)
        assert strict == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
            "base-uri": "'none'", "form-action": "'self'", "frame-ancestors": "'none'",
        }  # fmt: skip
        named = await policy(http, runtime="http://127.0.0.1:7000/mcp")
        assert named == {**strict, "connect-src": "'self' http://127.0.0.1:7000"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:7000", "http://127.0.0.1:7000"),
        (" https://runtime.example/a/status ", "https://runtime.example"),
        ("http://[::1]:7000/", "http://[::1]:7000"),
        ("HTTP://localhost:1", "http://localhost:1"),
        ("http://a:70000", ""),
        ("http://a:x", ""),
        ("http://user:key@a", ""),
        ("http://a b", ""),
        ("http://a;script-src *", ""),
        ("http://*", ""),
        ("http://a\r\nx: y", ""),
        ("http://", ""),
        ("javascript:alert(1)", ""),
        ("127.0.0.1:7000", ""),
        ("", ""),
    ],
)
def test_only_the_origin_of_a_plain_http_address_gets_into_the_policy(url: str, expected: str) -> None:
    assert origin(url) == expected


def test_the_page_asks_nobody_else_and_has_nothing_inline() -> None:
    for path in OWN:
        text = path.read_text()
        assert re.findall(r"https?://(?!127\.0\.0\.1|\.\.\.)[\w.]+", text) == [], path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path.name
    html = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)


def test_the_chart_library_stands_with_its_licence() -> None:
    text = (PAGE / "uplot.license.txt").read_text()
    version = re.search(r"uPlot ([\d.]+)", text)
    assert version is not None
    assert "MIT License" in text
    assert f"(v{version[1]})" in (PAGE / "uplot.iife.min.js").read_text()[:400]
