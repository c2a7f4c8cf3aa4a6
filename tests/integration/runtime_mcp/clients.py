"""Who talks with the runtime's MCP server in these tests: the SDK's client in both generations, and raw requests of the newer one."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.runtime_fakes import Served

SECONDS = 60.0
TASKS = "io.modelcontextprotocol/tasks"
BOTH = "application/json, text/event-stream"

Answer = Callable[[str], Awaitable[types.ElicitResult] | types.ElicitResult]


def says(action: str, **content: Any) -> types.ElicitResult:
    return types.ElicitResult(action=action, content=content or None)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def asked_client(at: Served, mode: str, answer: Answer):
    """A client whose person answers forms by `answer`, given the question; `client.asked` holds the questions."""
    asked: list[types.ElicitRequestFormParams] = []

    async def on_elicitation(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        given = answer(params.message)
        return given if isinstance(given, types.ElicitResult) else await given

    async with (
        httpx2.AsyncClient(timeout=60, trust_env=False) as http,
        Client(streamable_http_client(at.mcp, http_client=http), mode=mode, elicitation_callback=on_elicitation) as client,
    ):
        client.asked = asked  # type: ignore[attr-defined]
        yield client


class Stateless:
    """Requests of 2026-07-28 by hand."""

    def __init__(self, http: httpx.AsyncClient, url: str, capabilities: dict[str, Any], headers: dict[str, str]) -> None:
        self._http, self._url, self._capabilities, self._headers = http, url, capabilities, headers
        self._number = 0

    def request(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        self._number += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": self._capabilities,
            **params.get("_meta", {}),
        }
        name = params.get("name") or params.get("taskId") or ""
        headers = {"accept": BOTH, "mcp-protocol-version": "2026-07-28", "mcp-method": method, **({"mcp-name": name} if name else {})}
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": {**params, "_meta": meta}}
        return body, {**headers, **self._headers}

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The response, with the HTTP status beside it."""
        body, headers = self.request(method, params)
        answer = await self._http.post(self._url, json=body, headers=headers)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
        return {**json.loads(text), "status": answer.status_code}

    async def call(self, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
        return (await self.ask("tools/call", name=tool, arguments=arguments, **more))["result"]

    @contextlib.asynccontextmanager
    async def stream(self, method: str, **params: Any):
        """The messages of an event stream, one after another."""
        body, headers = self.request(method, params)
        async with self._http.stream("POST", self._url, json=body, headers=headers) as answer:

            async def messages():
                async for line in answer.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])

            yield messages()


@contextlib.asynccontextmanager
async def stateless(at: Served, *, tasks: bool = False, forms: bool = True, headers: dict[str, str] | None = None):
    capabilities: dict[str, Any] = {}
    if forms:
        capabilities["elicitation"] = {"form": {}}
    if tasks:
        capabilities["extensions"] = {TASKS: {}}
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        yield Stateless(http, at.mcp, capabilities, headers or {})


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def soon(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, SECONDS)
