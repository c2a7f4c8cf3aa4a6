"""What does the scheduler show of itself over HTTP?"""

from collections.abc import Callable
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response
from msgspec import Struct
from starlette.exceptions import HTTPException

from luftpause.kit import protocol
from luftpause.kit.clock import Clock
from luftpause.kit.errors import error_body
from luftpause.scheduler.core.model import State
from luftpause.scheduler.host import Host
from luftpause.scheduler.server import SessionServer
from luftpause.scheduler.session import Session

PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>luftpause scheduler</title></head>
<body><h1>luftpause scheduler</h1><p>What it knows, as JSON: <a href="status">/status</a></p></body></html>
"""


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
    sessions: list[SessionStatus]
    unknown_facts: int
    events: dict[str, int]
    decisions: dict[str, int]
    state: object


class Reporter:
    """Puts the status together from the host, its sessions and the core's own overview."""

    def __init__(self, host: Host, sessions: SessionServer, overview: Callable[[State, float], object], clock: Clock) -> None:
        self._host = host
        self._sessions = sessions
        self._overview = overview
        self._clock = clock
        self._started = clock()

    def status(self) -> Status:
        now = self._clock()
        sessions = self._sessions
        return Status(
            scheduler_epoch=sessions.epoch,
            protocol=f"{protocol.MAJOR}.{protocol.MINOR}",
            uptime_seconds=round(now - self._started, 3),
            events_per_second=round(self._host.rate.per_second(), 1),
            sessions=[_session(session, now) for session in sessions.sessions.values()],
            unknown_facts=sessions.unknown_facts + sum(session.unknown_facts for session in sessions.sessions.values()),
            events=dict(self._host.events),
            decisions=dict(self._host.decisions),
            state=self._overview(self._host.state, now),
        )


def create_app(reporter: Reporter) -> FastAPI:
    app = FastAPI(title="luftpause scheduler", docs_url=None, redoc_url=None)

    @app.get("/status")
    async def status() -> Response:  # pyright: ignore[reportUnusedFunction]
        """The state, as JSON."""
        return Response(msgspec.json.encode(reporter.status()), media_type="application/json", headers={"cache-control": "no-store"})

    @app.get("/health")
    async def health() -> Response:  # pyright: ignore[reportUnusedFunction]
        """It lives."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(PAGE, media_type="text/html; charset=utf-8")

    @app.exception_handler(HTTPException)
    async def error(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        message = f"{request.method} {request.url.path}: {error.detail}; this scheduler has GET /status and GET /health"
        code = "not_found" if error.status_code == 404 else "http_error"
        body = error_body(message, code=code, status=error.status_code)
        return Response(body, status_code=error.status_code, media_type="application/json", headers=error.headers)

    return app


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
