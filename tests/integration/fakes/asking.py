"""How do the tests ask a fake engine and wait for what it tells of itself?"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import openai

from tests.support.processes import Process

FAST = ("--port", "0", "--speed", "20")
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]
WAIT_SECONDS = 60.0


def client_of(engine: Process) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=engine.at["http"] + "/v1", api_key="none", max_retries=0, timeout=60, http_client=http)


def body(task: str, **more: object) -> dict[str, Any]:
    return {"model": "fake-1b", "messages": [{"role": "user", "content": task}], **more}


async def until(http: httpx.AsyncClient, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The counters once they are as wanted."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            shown = (await http.get("/_fake")).json()
            if holds(shown):
                return shown
            await asyncio.sleep(0.01)


async def events(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
