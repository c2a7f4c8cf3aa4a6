"""Which requests are sent? Conversations of a given size, as agents send them: a system prompt, tools, rounds of tool calls."""

from pathlib import Path

import orjson

SIZES = {"2k": 2_000, "32k": 32_000, "256k": 256_000}
_TEXT = "The quick brown fox reports that the lake has frozen over, and that the road along it is open until the evening. "


def write_bodies(folder: Path) -> dict[tuple[str, bool], Path]:
    """One file per size, with and without `stream`."""
    paths: dict[tuple[str, bool], Path] = {}
    for name, size in SIZES.items():
        for stream in (False, True):
            path = folder / f"{name}{'-stream' if stream else ''}.json"
            path.write_bytes(body(size, stream=stream))
            paths[name, stream] = path
    return paths


def body(size: int, *, stream: bool) -> bytes:
    """About `size` bytes, never more."""
    tool = {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Looks something up.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
    messages: list[object] = [{"role": "system", "content": "You are a careful assistant."}, {"role": "user", "content": _TEXT}]
    request: dict[str, object] = {"model": "fake", "stream": stream, "max_tokens": 256, "messages": messages, "tools": [tool]}
    rounds = 0
    while len(orjson.dumps(request)) + 1200 < size:
        call = {"id": f"call_{rounds:024x}", "type": "function", "function": {"name": "lookup", "arguments": '{"query": "lake"}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{rounds:024x}", "content": _TEXT * 6})
        rounds += 1
    if (left := size - len(orjson.dumps(request)) - 40) > 0:
        messages.append({"role": "user", "content": (_TEXT * (left // len(_TEXT) + 1))[:left]})
    return orjson.dumps(request)
