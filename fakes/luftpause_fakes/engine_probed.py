"""What does the fake engine tell those who probe it?"""

import asyncio

import orjson
from starlette.requests import Request
from starlette.responses import Response

from luftpause_fakes.engine_options import LLAMACPP_SLOTS
from luftpause_fakes.engine_state import EngineState


def state_of(request: Request) -> EngineState:
    state: EngineState = request.app.state.engine
    return state


def as_json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


async def models(request: Request) -> Response:
    state = state_of(request)
    options = state.options
    model = {"id": options.model, "object": "model", "created": 0, "owned_by": state.flavour.owned_by, "max_model_len": options.context}
    return as_json({"object": "list", "data": [model]})


async def health(request: Request) -> Response:
    state = state_of(request)
    seconds = state.faults.health_seconds
    if seconds is None:
        seconds = state.options.health_seconds
    if seconds is None:
        seconds = state.flavour.health_seconds / state.options.speed
    await asyncio.sleep(seconds)
    status = state.faults.health_status
    if state.flavour.name == "llamacpp":
        return as_json({"status": "ok"} if status == 200 else {"status": "error"}, status)
    return Response(b"", status)


async def ready(request: Request) -> Response:
    return Response(b"", state_of(request).faults.health_status)


async def metrics(request: Request) -> Response:
    state = state_of(request)
    if state.faults.gauges == "missing":
        return as_json(state.flavour.error(404, "Not Found", "NotFoundError"), 404)
    return Response(state.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def loads(request: Request) -> Response:
    state = state_of(request)
    gauges = state.claimed()
    load = {
        "dp_rank": 0,
        "num_running_reqs": gauges.running,
        "num_waiting_reqs": gauges.waiting,
        "num_used_tokens": gauges.kv_used,
        "max_total_num_tokens": gauges.kv_tokens,
        "max_running_requests": state.options.running_max,
        "token_usage": round(gauges.kv_used / max(1, gauges.kv_tokens), 4),
    }
    return as_json({"loads": [load]})


async def info(request: Request) -> Response:
    state = state_of(request)
    name, tokens = state.options.model, state.claimed().kv_tokens
    return as_json({"model_path": name, "served_model_name": name, "max_total_num_tokens": tokens or None})


async def load(request: Request) -> Response:
    gauges = state_of(request).claimed()
    return as_json({"server_load": gauges.running + gauges.waiting})


async def version(_: Request) -> Response:
    return as_json({"version": "0.32.0"})


async def props(request: Request) -> Response:
    options = state_of(request).options
    return as_json({
        "total_slots": options.at_once,
        "model_alias": options.model,
        "default_generation_settings": {"n_ctx": options.context},
    })


async def slots(request: Request) -> Response:
    state = state_of(request)
    running = state.claimed().running
    total = state.options.at_once or LLAMACPP_SLOTS
    if request.query_params.get("fail_on_no_slot") and running >= total:
        return as_json(state.flavour.error(503, "no slot available", "unavailable_error"), 503)
    return as_json([
        {"id": each, "n_ctx": state.options.context, "speculative": False, "is_processing": each < running} for each in range(total)
    ])
