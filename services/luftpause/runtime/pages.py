"""What does the runtime answer over plain HTTP: is it well, and which runs are there?"""

from collections.abc import Callable, Sequence
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from luftpause import __version__
from luftpause.kit.errors import error_body
from luftpause.runtime.gate import principal_of
from luftpause.runtime.ports import Json, RunView, Toolbox

JSON: Final = "application/json"


class Pages:
    """`GET /health` and `GET /status`; `runs` gives those of a principal, or all ("")."""

    def __init__(self, runs: Callable[[str], Sequence[RunView]], toolbox: Toolbox) -> None:
        self._runs = runs
        self._toolbox = toolbox
        self._pages: dict[str, Callable[[str], Json]] = {"/health": self._health, "/status": self._status}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._pages.get(scope["path"])
        if page is None:
            known = ", ".join(["/mcp", *self._pages])
            response = _refused(404, "not_found", f"there is nothing at {scope['path']}; there are {known}")
        elif scope["method"] not in {"GET", "HEAD"}:
            response = _refused(405, "method_not_allowed", f"{scope['path']} takes GET only", {"allow": "GET, HEAD"})
        else:
            response = Response(orjson.dumps(page(principal_of(scope))), media_type=JSON)
        await response(scope, receive, send)

    def _health(self, _: str) -> Json:
        return {"status": "ok", "service": "runtime", "version": __version__}

    def _status(self, principal: str) -> Json:
        """Runs with parent and children, never their tasks and answers."""
        return {
            "runs": [_run(run) for run in self._runs(principal)],
            "servers": [
                {"name": server.name, "connected": server.connected, "error": server.error, "tools": server.tools}
                for server in self._toolbox.servers()
            ],
        }


def _run(run: RunView) -> Json:
    return {
        "handle": run.handle,
        "state": run.state.value,
        "model": run.model,
        "class": run.service_class.value,
        "doing": run.doing,
        "parent": run.parent,
        "children": list(run.children),
        "turns": run.turns,
        "tool_calls": run.tool_calls,
        "failed_tool_calls": run.failed_tool_calls,
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "cached_tokens": run.cached_tokens,
        "seconds": round(run.seconds, 3),
    }


def _refused(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(message, code=code, status=status), status, headers, media_type=JSON)
