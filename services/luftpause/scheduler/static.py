"""How is the status page served: one HTML file, and what it loads from beside it?

The files are in `page/`. They are read once; what may be loaded and asked is said by the Content-Security-Policy: nothing from elsewhere,
but the runtime that the page's own address names.
"""

import hashlib
import re
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from luftpause.kit.errors import LuftpauseError

PREFIX: Final = "/page/"
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{runtime}; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


class File(Struct, frozen=True):
    body: bytes
    kind: str
    tag: str  # of this content


class Pages:
    """Handlers of the routes `/` and `/page/{name}`."""

    def __init__(self) -> None:
        folder = resources.files("luftpause.scheduler") / "page"
        self.files = {
            each.name: _file(each.read_bytes(), TYPES[each.name[each.name.rindex(".") :]]) for each in folder.iterdir() if each.is_file()
        }

    async def index(self, request: Request) -> Response:
        runtime = origin(request.query_params.get("runtime", ""))
        policy = POLICY.format(runtime=f" {runtime}" if runtime else "")
        return _answer(self.files[INDEX], request, {"content-security-policy": policy})

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            error = LuftpauseError(f"{PREFIX}{name[:100]} is not a file of the page; the page is at /", code="not_found", status=404)
            return Response(error.body(), error.status, media_type="application/json")
        return _answer(self.files[name], request, {"content-security-policy": POLICY.format(runtime="")})


def origin(url: str) -> str:
    """The origin of an http(s) URL as a policy may name it; empty for everything else (the page says what is wrong with it)."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    host = host[: host.rindex(":")] if port is not None else host.removesuffix(":")
    if parts.scheme not in {"http", "https"} or "@" in parts.netloc or not _HOST.fullmatch(host):
        return ""
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def _file(body: bytes, kind: str) -> File:
    return File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _answer(file: File, request: Request, headers: dict[str, str]) -> Response:
    headers = {**HEADERS, **headers, "etag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={**headers, "content-type": file.kind})
