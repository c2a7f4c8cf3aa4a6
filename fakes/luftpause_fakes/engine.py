"""Which paths does the fake engine serve, and how does it run?

The engine model behind an OpenAI-compatible server. What it answers: engine_script. What can go wrong: engine_faults, by POST /_fake.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from luftpause.kit.errors import LuftpauseError
from luftpause_fakes.engine_faults import FaultError, take
from luftpause_fakes.engine_flavours import Refusal
from luftpause_fakes.engine_model import Refused
from luftpause_fakes.engine_options import EngineOptions
from luftpause_fakes.engine_state import EngineState
from luftpause_fakes.engine_turn import TurnResponse, read_turn
from luftpause_fakes.engine_wire import DONE, event
from luftpause_fakes.http_server import serve_app

__all__ = ["EngineOptions", "app_of", "serve"]

Answering = Callable[[Request], Awaitable[ASGIApp]]


async def serve(options: EngineOptions, announce: Path | None = None) -> None:
    """Serves until SIGTERM. Raises LuftpauseError for a taken port and impossible faults."""
    try:
        state = EngineState(options)
    except FaultError as error:
        raise LuftpauseError(f"--faults: {error}", code="bad_argument") from error
    try:
        await serve_app(app_of(state), host=options.host, port=options.port, option="--port", announced=announce)
    finally:
        state.host.stop()


def app_of(state: EngineState) -> ASGIApp:
    common = {
        "/v1/chat/completions": ("POST", _chat),
        "/v1/models": ("GET", _models),
        "/health": ("GET", _health),
        "/metrics": ("GET", _metrics),
    }
    own = {
        "sglang": {
            "/health_generate": ("GET", _health),
            "/ready": ("GET", _ready),
            "/v1/loads": ("GET", _loads),
            "/server_info": ("GET", _info),
        },
        "vllm": {"/load": ("GET", _load), "/version": ("GET", _version)},
        "llamacpp": {"/props": ("GET", _props), "/slots": ("GET", _slots)},
    }[state.options.flavour]
    routes = [Route("/_fake", _control, methods=["GET", "POST"])]
    routes += [Route(path, _Endpoint(answer), methods=[method]) for path, (method, answer) in {**common, **own}.items()]
    app = Starlette(routes=routes)
    app.state.engine = state
    return app


class _Endpoint:
    """A path that isn't served while the engine is told to be loading."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        state = _state(request)
        if state.faults.loading:
            response: ASGIApp = _refusal(state.flavour.loading())
        else:
            try:
                response = await self._answer(request)
            except ClientDisconnect:
                return
        await response(scope, receive, send)


def _state(request: Request) -> EngineState:
    state: EngineState = request.app.state.engine
    return state


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


def _refusal(refusal: Refusal, *, stream: bool = False) -> Response:
    if stream and refusal.in_stream:
        return Response(event(refusal.in_event()) + DONE, media_type="text/event-stream")
    return _json(refusal.body, refusal.status)


# ---- turns --------------------------------------------------------------------------------------------------------


async def _chat(request: Request) -> ASGIApp:
    state = _state(request)
    body = await _body(request, state.options.body_bytes_max)
    state.note(request)
    if body is None:
        state.seen.bad += 1
        return _json(state.flavour.error(413, f"the body is longer than {state.options.body_bytes_max} bytes", "TooLarge"), 413)
    if take(state.faults, "refuse"):
        return _ordered_refusal(state)
    turn = read_turn(state, body)
    if isinstance(turn, Refusal):
        state.seen.bad += 1
        return _refusal(turn)
    feed = state.host.submit(turn.request)
    state.note_load()
    if isinstance(feed, Refused):
        state.seen.refused += 1
        return _refusal(state.flavour.queue_full(feed.reason), stream=turn.stream)
    return TurnResponse(state, turn, feed)


async def _body(request: Request, most: int) -> bytes | None:
    """None: it is too long, and the rest is thrown away unread."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _ordered_refusal(state: EngineState) -> Response:
    faults = state.faults
    state.seen.failed += 1
    status = faults.refuse_status or 503
    if faults.refuse_text is not None:
        response = Response(faults.refuse_text, status, media_type="text/html")
    else:
        response = _json(state.flavour.error(status, "the fake engine was told to refuse", "Refused"), status)
    if faults.refuse_retry_after is not None:
        response.headers["retry-after"] = faults.refuse_retry_after
    return response


# ---- what probes ask ----------------------------------------------------------------------------------------------


async def _models(request: Request) -> Response:
    state = _state(request)
    options = state.options
    model = {"id": options.model, "object": "model", "created": 0, "owned_by": state.flavour.owned_by, "max_model_len": options.context}
    return _json({"object": "list", "data": [model]})


async def _health(request: Request) -> Response:
    state = _state(request)
    seconds = state.faults.health_seconds
    if seconds is None:
        seconds = state.options.health_seconds
    if seconds is None:
        seconds = state.flavour.health_seconds / state.options.speed
    await asyncio.sleep(seconds)
    status = state.faults.health_status
    if state.flavour.name == "llamacpp":
        return _json({"status": "ok"} if status == 200 else {"status": "error"}, status)
    return Response(b"", status)


async def _ready(request: Request) -> Response:
    return Response(b"", _state(request).faults.health_status)


async def _metrics(request: Request) -> Response:
    state = _state(request)
    if state.faults.gauges == "missing":
        return _json(state.flavour.error(404, "Not Found", "NotFoundError"), 404)
    return Response(state.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _loads(request: Request) -> Response:
    state = _state(request)
    gauges = state.host.engine.gauges()
    running, waiting = state.claimed()
    load = {
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_used_tokens": gauges.kv_used,
        "max_total_num_tokens": gauges.kv_tokens,
        "max_running_requests": state.options.running_max,
        "token_usage": round(gauges.kv_used / gauges.kv_tokens, 4),
    }
    return _json({"loads": [load]})


async def _info(request: Request) -> Response:
    options = _state(request).options
    return _json({"model_path": options.model, "served_model_name": options.model, "max_total_num_tokens": options.kv_tokens})


async def _load(request: Request) -> Response:
    return _json({"server_load": sum(_state(request).claimed())})


async def _version(_: Request) -> Response:
    return _json({"version": "0.32.0"})


async def _props(request: Request) -> Response:
    options = _state(request).options
    return _json({
        "total_slots": options.running_max or 4,
        "model_alias": options.model,
        "default_generation_settings": {"n_ctx": options.context},
    })


async def _slots(request: Request) -> Response:
    state = _state(request)
    running, _ = state.claimed()
    total = state.options.running_max or 4
    if request.query_params.get("fail_on_no_slot") and running >= total:
        return _json(state.flavour.error(503, "no slot available", "unavailable_error"), 503)
    return _json([
        {"id": each, "n_ctx": state.options.context, "speculative": False, "is_processing": each < running} for each in range(total)
    ])


# ---- control ------------------------------------------------------------------------------------------------------


async def _control(request: Request) -> Response:
    """GET: counters. POST: faults (engine_faults.Faults), in the answer as they are now."""
    state = _state(request)
    if request.method == "POST":
        try:
            state.order(await request.body())
        except FaultError as error:
            return _json({"error": {"message": str(error), "type": "invalid_request_error", "code": "bad_argument"}}, 400)
    return _json(state.shown())
