"""What does the scheduler show of itself over HTTP? Who may read it is asked before, by `door`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from luftpause import __version__
from luftpause.kit import metrics, protocol
from luftpause.kit.clock import Clock
from luftpause.kit.errors import LuftpauseError, error_body
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.view import CALLERS_SHOWN_MAX, HELD_SHOWN_MAX, Overview, Shown
from luftpause.scheduler.governor.view import Quotas
from luftpause.scheduler.host import Host
from luftpause.scheduler.parameters import Takes, numbers
from luftpause.scheduler.server import SessionServer
from luftpause.scheduler.session import Session
from luftpause.scheduler.static import PREFIX, Pages
from luftpause.scheduler.timeline import RUNS_MAX, Lately, Timeline

HEALTH: Final = f'{{"status":"ok","service":"scheduler","version":"{__version__}"}}'
ASKED_MAX: Final = 1000  # of a list in one answer: some 10 ms of the loop
CURSOR_MAX: Final = (1 << 53) - 1
TAKES: Final = {"held": Takes(HELD_SHOWN_MAX, ASKED_MAX), "callers": Takes(CALLERS_SHOWN_MAX, ASKED_MAX)}
TIMELINE_TAKES: Final = {"since": Takes(0, CURSOR_MAX), "runs": Takes(RUNS_MAX, RUNS_MAX)}
PAGES: Final = "GET / (a page), GET /status (JSON; ?held=N&callers=N), GET /timeline (JSON; ?since=N&runs=N)"
PATHS: Final = f"{PAGES}, GET /metrics (Prometheus) and GET /health"


class SessionStatus(Struct, frozen=True):
    """An open session. `resynced`: its Hello is complete, so that its turns are placed."""

    dataplane: str
    session: str
    boot: str
    peer: str
    resynced: bool
    connected_seconds: float
    heard_seconds_ago: float
    facts: int
    unknown_facts: int
    orders_waiting: int


class Status(Struct, frozen=True):
    """`state` is the core's overview; counters run since the start."""

    scheduler_epoch: str
    protocol: str
    uptime_seconds: float
    events_per_second: float
    inbox_events: int
    sessions: list[SessionStatus]
    unknown_facts: int
    undeliverable_orders: int
    events: dict[str, int]
    decisions: dict[str, int]
    state: Overview
    quota: Quotas


View = Callable[[State, float, Shown], Overview]


class Reporter:
    """Puts the status together from the host, its sessions and the core's own overview."""

    def __init__(self, host: Host, sessions: SessionServer, view: View, clock: Clock, quota: Callable[[], Quotas] = Quotas) -> None:
        self._host = host
        self._quota = quota
        self._sessions = sessions
        self._view = view
        self._clock = clock
        self._started = clock()

    def status(self, shown: Shown | None = None) -> Status:
        now = self._clock()
        sessions = self._sessions
        return Status(
            scheduler_epoch=sessions.epoch,
            protocol=f"{protocol.MAJOR}.{protocol.MINOR}",
            uptime_seconds=round(now - self._started, 3),
            events_per_second=round(self._host.rate.per_second(), 1),
            inbox_events=self._host.waiting,
            sessions=[_session(session, now) for session in sessions.sessions.values()],
            unknown_facts=sessions.unknown_facts + sum(session.unknown_facts for session in sessions.sessions.values()),
            undeliverable_orders=self._host.undeliverable,
            events=dict(self._host.events),
            decisions=dict(self._host.decisions),
            state=self._view(self._host.state, now, shown or Shown()),
            quota=self._quota(),
        )

    def lately(self, timeline: Timeline, since: int, runs: int) -> Lately:
        return timeline.lately(self._sessions.epoch, self._clock(), since, runs)


def create_app(reporter: Reporter, collectors: Sequence[Collector] = (), timeline: Timeline | None = None) -> Starlette:
    """The pages. `collectors` are what `/metrics` shows; `timeline` what `/timeline` does, which is not there without it."""
    app = Starlette(exception_handlers={HTTPException: _refused})
    pages = Pages()

    async def status(request: Request) -> Response:
        return _json(request, TAKES, lambda asked: reporter.status(Shown(**asked)))

    async def lately(request: Request) -> Response:
        return _json(request, TIMELINE_TAKES, lambda asked: reporter.lately(timeline, **asked) if timeline is not None else None)

    async def metrics_page(request: Request) -> Response:
        body, kind = await metrics.page(collectors, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind, "cache-control": "no-store"})

    async def health(_: Request) -> Response:
        return Response(HEALTH, media_type="application/json")

    routes = {"/": pages.index, f"{PREFIX}{{name}}": pages.file, "/status": status, "/metrics": metrics_page, "/health": health}
    if timeline is not None:
        routes["/timeline"] = lately
    for path, handler in routes.items():
        app.add_route(path, handler, methods=["GET"])  # which answers HEAD too
    return app


async def _refused(request: Request, error: Exception) -> Response:
    status, detail, headers = (
        (error.status_code, error.detail, error.headers) if isinstance(error, HTTPException) else (500, str(error), None)
    )
    message = f"{request.method} {request.url.path}: {detail}; this scheduler has {PATHS}"
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "http_error")
    return Response(error_body(message, code=code, status=status), status, headers, media_type="application/json")


def _json(request: Request, takes: Mapping[str, Takes], answer: Callable[[dict[str, int]], object]) -> Response:
    try:
        body = msgspec.json.encode(answer(numbers(request.query_params.multi_items(), takes, request.url.path)))
    except LuftpauseError as error:
        return Response(error.body(), status_code=error.status, media_type="application/json")
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def schema() -> Mapping[str, object]:
    """The JSON Schema of `/status` (and of `/timeline`, under `$defs/Lately`), as it stands in docs/status.schema.json."""
    (status, _), definitions = msgspec.json.schema_components((Status, Lately), ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **status, "$defs": definitions}


def _session(session: Session, now: float) -> SessionStatus:
    return SessionStatus(
        dataplane=session.dataplane,
        session=session.id,
        boot=session.boot,
        peer=session.peer,
        resynced=session.complete,
        connected_seconds=round(now - session.since, 3),
        heard_seconds_ago=round(now - session.heard, 3),
        facts=session.facts,
        unknown_facts=session.unknown_facts,
        orders_waiting=len(session.outbox),
    )
