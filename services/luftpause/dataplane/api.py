"""Which routes of the dataplane are not relayed to engines?"""

import time
from collections.abc import Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from luftpause import __version__
from luftpause.dataplane.identify import RUN_ID
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import Replica, Scheduler
from luftpause.kit.model_names import fits, is_pattern

JSON = "application/json"


def make_api(scheduler: Scheduler, is_stopping: Callable[[], bool]) -> Starlette:
    """The ASGI app behind `bridge`."""
    routes = _Routes(scheduler, is_stopping)
    api = Starlette(
        routes=[
            Route("/health", routes.health),
            Route("/ready", routes.ready),
            Route("/v1/models", routes.models),
            Route("/v1/models/{name:path}", routes.model),
            Route("/v1/runs", routes.run_of_call),
            Route("/v1/runs/{run:path}", routes.end_run, methods=["DELETE"]),
        ],
        exception_handlers={HTTPException: _refused},
    )
    api.router.redirect_slashes = False
    return api


class _Routes:
    def __init__(self, scheduler: Scheduler, is_stopping: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._is_stopping = is_stopping
        self._started = int(time.time())
        self._started_text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started))

    async def health(self, _: Request) -> Response:
        """Is the process alive?"""
        return _json({"status": "ok", "service": "dataplane", "version": __version__})

    async def ready(self, _: Request) -> Response:
        """May a load balancer send turns here?"""
        scheduler, stopping = self._scheduler, self._is_stopping()
        serves = scheduler.contacted and not stopping
        shows = {
            "ready": serves,
            "stopping": stopping,
            "scheduler": {"connected": scheduler.connected, "contacted": scheduler.contacted},
            "replicas": [shown(each) for each in by_name(scheduler)],
        }
        return _json(shows) if serves else _json(shows, 503, {"retry-after": "1"})

    async def models(self, _: Request) -> Response:
        """OpenAI's format, and Anthropic's beside it: their fields have different names."""
        data = [self._model(name, owner) for name, owner in served(self._scheduler).items()]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return _json({"object": "list", "data": data, "has_more": False} | ends)

    async def model(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        owner = owner_of(self._scheduler, name)
        if owner is None:
            return answer(Rejection(404, "model_not_found", f"no replica serves model {name!r}; GET /v1/models lists those served"))
        return _json(self._model(name, owner))

    async def run_of_call(self, request: Request) -> Response:
        """The run whose model made a tool call."""
        id_ = request.query_params.get("tool_call_id", "")
        if not id_:
            return answer(Rejection(400, "bad_tool_call_id", "say which: GET /v1/runs?tool_call_id=ID"))
        run = self._scheduler.run_of_call(id_, request.state.principal)
        if not run:
            return answer(Rejection(404, "unknown_tool_call", f"no run is known whose model made the tool call {id_[:200]!r}"))
        return _json({"run": run})

    async def end_run(self, request: Request) -> Response:
        """It is over: forget it."""
        run = str(request.path_params["run"])
        if RUN_ID.fullmatch(run) is None:
            return answer(Rejection(400, "bad_run_id", "a run id has 1 to 128 visible ASCII characters"))
        self._scheduler.end_run(run, request.state.principal)
        return Response(status_code=204)

    def _model(self, name: str, owner: str) -> dict[str, Any]:
        openai = {"id": name, "object": "model", "created": self._started, "owned_by": owner}
        kind = self._scheduler.replicas[owner].kind.value
        return openai | {"type": "model", "display_name": name, "created_at": self._started_text, "kind": kind}


async def _refused(_: Request, error: Exception) -> Response:
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    return answer(Rejection(status, "not_found" if status == 404 else "refused", detail))


def methods_of(api: Starlette, path: str) -> frozenset[str]:
    """The methods that the app has for a path."""
    found: set[str] = set()
    for route in api.routes:
        if isinstance(route, Route) and route.matches({"type": "http", "method": "GET", "path": path})[0] is not Match.NONE:
            found |= route.methods or set()
    return frozenset(found)


def _json(fields: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(fields), status, headers, media_type=JSON)


def answer(rejection: Rejection) -> Response:
    return Response(rejection.body(), status_code=rejection.status, media_type=JSON)


def by_name(scheduler: Scheduler) -> list[Replica]:
    return [scheduler.replicas[name] for name in sorted(scheduler.replicas)]


def served(scheduler: Scheduler) -> dict[str, str]:
    """Model to the name of the first replica that serves it. Names with `*` stand for nobody knows which."""
    found: dict[str, str] = {}
    for replica in by_name(scheduler):
        for name in replica.models:
            if not is_pattern(name):
                found.setdefault(name, replica.name)
    return dict(sorted(found.items()))


def owner_of(scheduler: Scheduler, model: str) -> str | None:
    """The first replica that serves the model by its name, else by a pattern that it fits."""
    if is_pattern(model):
        return None  # no model has that name
    by_pattern = (each.name for each in by_name(scheduler) if any(fits(name, model) for name in each.models))
    return served(scheduler).get(model) or next(by_pattern, None)


def shown(replica: Replica) -> dict[str, Any]:
    return {"name": replica.name, "state": replica.state, "kind": replica.kind.value, "models": list(replica.models)}
