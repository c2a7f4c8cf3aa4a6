"""What do scripted model endpoints answer, so that a real client calls luftpause's tools without an account or a network?

A script is a list of steps, `{"tool": name, "input": {…}}` or `{"text": "…"}`; the answer to a request is the step whose number is that of
the tool results in it. In an input `$handle` becomes the newest handle seen in a result and `"$handles"` the list of all, in a text `$last`
the newest result. `state.times` of an app are when it took its steps, on a clock of seconds.
"""

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
Step = Json

SERVER = "luftpause"


def _filled(step: Step, results: Sequence[str]) -> Step:
    handles = re.findall(r"run_[0-9A-Za-z]{8,64}", " ".join(results))
    if "tool" in step:
        filled = json.dumps(step["input"]).replace('"$handles"', json.dumps(list(dict.fromkeys(handles))))
        filled = filled.replace("$handle", handles[-1] if handles else "none")
        return {"tool": step["tool"], "input": json.loads(filled)}
    return {"text": step["text"].replace("$last", results[-1] if results else "")}


def _step(script: Sequence[Step], results: Sequence[str]) -> Step:
    return _filled(script[len(results)], results) if len(results) < len(script) else {"text": "ok"}


def _stream(events: Sequence[tuple[str, Json]]) -> Response:
    async def body() -> AsyncIterator[str]:
        for name, data in events:
            yield f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


# ---- Anthropic Messages, for Claude Code ------------------------------------------------------------------------


def anthropic(script: Sequence[Step]) -> Starlette:
    """`POST /v1/messages`. Only requests that offer luftpause's tools follow the script; titles and warm-ups get a short text."""

    async def messages(request: Request) -> Response:
        body: Json = await request.json()
        offered = any(str(tool.get("name", "")).startswith(f"mcp__{SERVER}__") for tool in body.get("tools", []))
        step = _step(script, _tool_results(body["messages"])) if offered else {"text": "ok"}
        if offered:
            app.state.times.append(time.monotonic())
        message = _message(str(body.get("model", "scripted")), step)
        return _message_stream(message) if body.get("stream") else JSONResponse(message)

    async def count_tokens(_: Request) -> Response:
        return JSONResponse({"input_tokens": 10})

    async def models(_: Request) -> Response:
        return JSONResponse({"data": [], "has_more": False})

    app = Starlette(routes=[
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
        Route("/v1/models", models),
    ])  # fmt: skip
    app.state.times = list[float]()
    return app


def _tool_results(messages: Sequence[Json]) -> list[str]:
    blocks: list[Json] = []
    for message in messages:
        blocks += message["content"] if isinstance(message["content"], list) else []
    return [json.dumps(block.get("content")) for block in blocks if block.get("type") == "tool_result"]


def _message(model: str, step: Step) -> Json:
    if "tool" in step:
        name = f"mcp__{SERVER}__{step['tool']}"
        block: Json = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(10)}", "name": name, "input": step["input"]}
    else:
        block = {"type": "text", "text": step["text"]}
    return {
        "id": f"msg_{secrets.token_hex(10)}", "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": "tool_use" if "tool" in step else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }  # fmt: skip


def _message_stream(message: Json) -> Response:
    (block,) = message["content"]
    if block["type"] == "tool_use":
        empty: Json = {**block, "input": {}}
        delta: Json = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    return _stream([
        ("message_start", {"message": {**message, "content": [], "stop_reason": None}}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 5}}),
        ("message_stop", {}),
    ])


# ---- OpenAI Responses, for Codex --------------------------------------------------------------------------------


def responses(script: Sequence[Step]) -> Starlette:
    """`POST /v1/responses`, streamed."""

    async def create(request: Request) -> Response:
        body: Json = await request.json()
        results = [json.dumps(item.get("output")) for item in body["input"] if item.get("type") == "function_call_output"]
        app.state.times.append(time.monotonic())
        return _response_stream(str(body.get("model", "scripted")), _item(_step(script, results), body.get("tools", [])))

    async def other(_: Request) -> Response:
        return JSONResponse({"data": [], "models": []})

    app = Starlette(routes=[Route("/v1/responses", create, methods=["POST"]), Route("/{path:path}", other, methods=["GET", "POST"])])
    app.state.times = list[float]()
    return app


def _item(step: Step, tools: Sequence[Json]) -> Json:
    if "tool" not in step:
        content: list[Json] = [{"type": "output_text", "text": step["text"], "annotations": []}]
        return {"type": "message", "id": f"msg_{secrets.token_hex(8)}", "role": "assistant", "status": "completed", "content": content}
    item: Json = {
        "type": "function_call", "id": f"fc_{secrets.token_hex(8)}", "call_id": f"call_{secrets.token_hex(8)}", "name": step["tool"],
        "arguments": json.dumps(step["input"]), "status": "completed",
    }  # fmt: skip
    # Codex groups the tools of a server in a namespace and wants it back with each call.
    for group in tools:
        if group.get("type") == "namespace" and SERVER in group["name"]:
            item["namespace"] = group["name"]
    return item


def _response_stream(model: str, item: Json) -> Response:
    usage = {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
    }  # fmt: skip
    response: Json = {"id": f"resp_{secrets.token_hex(8)}", "object": "response", "created_at": 1_700_000_000, "model": model, "output": []}
    return _stream([
        ("response.created", {"response": {**response, "status": "in_progress"}}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": usage}}),
    ])
