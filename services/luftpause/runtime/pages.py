"""What does the runtime answer over plain HTTP: is it well, which runs are there, and what has it counted?"""

from collections.abc import Callable, Sequence
from typing import Final

import orjson
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from luftpause import __version__
from luftpause.kit import metrics
from luftpause.kit.errors import error_body
from luftpause.runtime.gate import METRICS, principal_of
from luftpause.runtime.ports import Amounts, Budget, Costs, Json, RunView, Toolbox

JSON: Final = "application/json"


class Pages:
    """`GET /health`, `/status` and `/metrics`; `runs` gives those of a principal, or all (""); `collectors` are what `/metrics` shows."""

    def __init__(
        self, runs: Callable[[str], Sequence[RunView]], toolbox: Toolbox, collectors: Sequence[Collector] = ()
    ) -> None:  # fmt: skip
        self._runs = runs
        self._toolbox = toolbox
        self._collectors = collectors
        self._pages: dict[str, Callable[[str], Json]] = {"/health": self._health, "/status": self._status}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._pages.get(scope["path"])
        if page is None and scope["path"] != METRICS:
            known = ", ".join(["/mcp", *self._pages, METRICS])
            response = _refused(404, "not_found", f"there is nothing at {scope['path']}; there are {known}")
        elif scope["method"] not in {"GET", "HEAD"}:
            response = _refused(405, "method_not_allowed", f"{scope['path']} takes GET only", {"allow": "GET, HEAD"})
        elif page is None:
            body, kind = await metrics.page(self._collectors, Headers(scope=scope).get("accept", ""))
            response = Response(body, headers={"content-type": kind, "cache-control": "no-store"})
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
                {"name": server.name, "connected": server.connected, "error": server.error, "tools": server.tools, "notes": server.notes}
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
        "turn_seconds": run.turn_seconds,
        "tool_seconds": run.tool_seconds,
        "subtree": _costs(run.subtree),
        "budget": _budget(run.budget),
        "pending_approvals": [{"id": each.id, "tool": each.tool, "asked_at": each.asked_at} for each in run.pending_approvals],
    }


def _costs(costs: Costs) -> Json:
    """Of the run and all its descendants."""
    return {
        "turns": costs.turns,
        "tool_calls": costs.tool_calls,
        "failed_tool_calls": costs.failed_tool_calls,
        "prompt_tokens": costs.prompt_tokens,
        "completion_tokens": costs.completion_tokens,
        "cached_tokens": costs.cached_tokens,
        "turn_seconds": round(costs.turn_seconds, 3),
        "tool_seconds": round(costs.tool_seconds, 3),
    }


def _budget(budget: Budget | None) -> Json | None:
    return (
        None
        if budget is None
        else {
            "limits": _amounts(budget.limits),
            "used": _amounts(budget.used),
            "exceeded": None if budget.exceeded is None else budget.exceeded.value,
        }
    )


def _amounts(amounts: Amounts) -> Json:
    return {"tokens": amounts.tokens, "toolCalls": amounts.tool_calls, "seconds": amounts.seconds}


def _refused(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(message, code=code, status=status), status, headers, media_type=JSON)
