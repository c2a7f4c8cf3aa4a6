"""Which paths does the fake engine serve, and how does it run?

The engine model behind a server that speaks the formats of real engines. What it answers: engine_script. What can go wrong: engine_faults,
by POST /_fake.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from luftpause.kit.errors import LuftpauseError
from luftpause_fakes import engine_probed as probed
from luftpause_fakes import engine_single as single
from luftpause_fakes.engine_asked import BadRequestError, Json
from luftpause_fakes.engine_chat import DONE, event
from luftpause_fakes.engine_faults import FaultError, take
from luftpause_fakes.engine_flavours import Refusal
from luftpause_fakes.engine_host import Gpu
from luftpause_fakes.engine_model import Refused
from luftpause_fakes.engine_options import EngineOptions
from luftpause_fakes.engine_probed import as_json, state_of
from luftpause_fakes.engine_read import FORMATS, Format, read_body, read_turn, refusal_of
from luftpause_fakes.engine_state import EngineState
from luftpause_fakes.engine_turn import TurnResponse
from luftpause_fakes.http_server import serve_apps

__all__ = ["EngineOptions", "app_of", "serve"]

Answering = Callable[[Request], Awaitable[ASGIApp]]
Single = Callable[[EngineState, Json], Awaitable[Json]]


async def serve(options: EngineOptions, announce: Path | None = None) -> None:
    """
    Serves `options.engines` engines on one GPU until SIGTERM: on the port and those after it, or all on free ones.

    Raises LuftpauseError for a taken port and impossible faults.
    """
    gpu = Gpu(options.speed)
    try:
        states = [EngineState(options, gpu) for _ in range(options.engines)]
    except FaultError as error:
        raise LuftpauseError(f"--faults: {error}", code="bad_argument") from error
    ports = [options.port + number if options.port else 0 for number in range(options.engines)]
    try:
        await serve_apps([app_of(state) for state in states], host=options.host, ports=ports, option="--port", announced=announce)
    finally:
        gpu.stop()


def app_of(state: EngineState) -> ASGIApp:
    app = Starlette(routes=[Route("/_fake", _control, methods=["GET", "POST"]), *_routes(state)])
    app.state.engine = state
    return app


def _routes(state: EngineState) -> list[Route]:
    common: list[tuple[str, str, Answering]] = [
        *(("POST", path, partial(_turn, form=form)) for path, form in FORMATS.items()),
        ("POST", "/v1/messages/count_tokens", partial(_single, answer=_count)),
        ("GET", "/v1/responses/{id}", _response),
        ("DELETE", "/v1/responses/{id}", _response),
        ("POST", "/v1/responses/{id}/cancel", _response),
        ("GET", "/v1/models", probed.models),
        ("GET", "/health", probed.health),
        ("GET", "/metrics", probed.metrics),
    ]
    passes: list[tuple[str, str, Answering]] = [
        ("POST", "/classify", partial(_single, answer=single.classification)),
        ("POST", "/v1/embeddings", partial(_single, answer=single.embeddings)),
    ]
    own: dict[str, list[tuple[str, str, Answering]]] = {
        "sglang": [
            *passes,
            ("GET", "/health_generate", probed.health),
            ("GET", "/ready", probed.ready),
            ("GET", "/v1/loads", probed.loads),
            ("GET", "/server_info", probed.info),
        ],
        "vllm": [
            *passes,
            ("POST", "/v1/chat/completions/render", partial(_single, answer=_render)),
            ("GET", "/load", probed.load),
            ("GET", "/version", probed.version),
        ],
        "llamacpp": [
            ("POST", "/v1/embeddings", _no_embeddings),
            ("GET", "/props", probed.props),
            ("GET", "/slots", probed.slots),
        ],
    }
    return [Route(path, _Endpoint(answer), methods=[method]) for method, path, answer in common + own[state.options.flavour]]


class _Endpoint:
    """A path that isn't served while the engine is told to be loading."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        state = state_of(request)
        if state.faults.loading:
            response: ASGIApp = _refusal(state.flavour.loading())
        else:
            try:
                response = await self._answer(request)
            except ClientDisconnect:
                return
        await response(scope, receive, send)


def _refusal(refusal: Refusal, *, stream: bool = False) -> Response:
    if stream and refusal.in_stream:
        return Response(event(refusal.in_event()) + DONE, media_type="text/event-stream")
    return as_json(refusal.body, refusal.status)


# ---- turns --------------------------------------------------------------------------------------------------------


async def _turn(request: Request, form: Format) -> ASGIApp:
    state = state_of(request)
    body = await _body(request, state.options.body_bytes_max)
    state.note(request)
    if isinstance(body, Refusal):
        state.seen.bad += 1
        return _refusal(body)
    if take(state.faults, "refuse"):
        return _ordered_refusal(state)
    turn = read_turn(state, body, form)
    if isinstance(turn, Refusal):
        state.seen.bad += 1
        return _refusal(turn)
    feed = state.host.submit(turn.request)
    state.note_load()
    if isinstance(feed, Refused):
        state.seen.refused += 1
        return _refusal(state.flavour.queue_full(feed.reason), stream=turn.asked.stream)
    return TurnResponse(state, turn, feed)


async def _body(request: Request, most: int) -> bytes | Refusal:
    """The rest of one that is too long is thrown away unread."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return Refusal(413, state_of(request).flavour.error(413, f"the body is longer than {most} bytes", "TooLarge"))
        parts.append(part)
    return b"".join(parts)


def _ordered_refusal(state: EngineState) -> Response:
    faults = state.faults
    state.seen.failed += 1
    status = faults.refuse_status or 503
    if faults.refuse_text is not None:
        response = Response(faults.refuse_text, status, media_type="text/html")
    else:
        response = as_json(state.flavour.error(status, "the fake engine was told to refuse", "Refused"), status)
    if faults.refuse_retry_after is not None:
        response.headers["retry-after"] = faults.refuse_retry_after
    return response


# ---- one pass, stored responses -----------------------------------------------------------------------------------


async def _single(request: Request, answer: Single) -> Response:
    state = state_of(request)
    body = await _body(request, state.options.body_bytes_max)
    if isinstance(body, Refusal):
        return _refusal(body)
    if take(state.faults, "refuse"):
        return _ordered_refusal(state)
    try:
        return as_json(await answer(state, read_body(state, body)))
    except BadRequestError as error:
        return _refusal(refusal_of(state, error))


async def _count(state: EngineState, asked: Json) -> Json:
    return single.token_count(state, asked)


async def _render(state: EngineState, asked: Json) -> Json:
    return single.rendered(state, asked)


async def _no_embeddings(request: Request) -> Response:
    flavour = state_of(request).flavour
    return as_json(flavour.error(501, "This server does not support embeddings. Start it with `--embeddings`", "not_supported_error"), 501)


async def _response(request: Request) -> Response:
    state = state_of(request)
    id_ = str(request.path_params["id"])
    try:
        kept = state.kept(id_)
        if request.method == "DELETE":
            state.forget(id_)
            return as_json({"id": id_, "object": "response", "deleted": True})
    except BadRequestError as error:
        return _refusal(refusal_of(state, error))
    if request.method == "POST":
        return _refusal(state.flavour.bad_request("Only responses that run in the background can be cancelled."))
    return as_json(kept.whole)


# ---- control ------------------------------------------------------------------------------------------------------


async def _control(request: Request) -> Response:
    """GET: counters. POST: faults (engine_faults.Faults), in the answer as they are now."""
    state = state_of(request)
    if request.method == "POST":
        try:
            state.order(await request.body())
        except FaultError as error:
            return as_json({"error": {"message": str(error), "type": "invalid_request_error", "code": "bad_argument"}}, 400)
    return as_json(state.shown())
