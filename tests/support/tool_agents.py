"""How does an agent with its own loop talk to dataplanes, and what did each of its turns look like from outside?"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

Json = dict[str, Any]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look a fact up.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]


@dataclass
class Turn:
    """Times on this process's monotonic clock. `error` empty: a whole answer came, up to [DONE]."""

    asked: float
    head: float = 0.0
    ended: float = 0.0
    status: int = 0
    run: str = ""
    replica: str = ""
    held_ms: float = 0.0
    hold_reason: str = ""
    error: str = "unfinished"
    text: str = ""
    calls: list[Json] = field(default_factory=list)


class Agent:
    """One conversation. `headers` empty: luftpause has to recognise the run by its tool-call ids."""

    def __init__(self, http: httpx.AsyncClient, task: str, *, model: str = "fake-1b", headers: dict[str, str] | None = None) -> None:
        self.http = http
        self.model = model
        self.headers = headers or {}
        self.turns: list[Turn] = []
        self.messages: list[Json] = [{"role": "system", "content": "Look facts up before you answer."}, {"role": "user", "content": task}]

    async def turn(self, base_url: str, on_text: Callable[[], None] | None = None) -> Turn:
        """
        Ask one streamed turn and add its answer, and results of the tools that it calls, to the conversation.

        `on_text` is called whenever bytes of the answer have come.
        """
        turn = Turn(time.monotonic())
        self.turns.append(turn)
        body = {"model": self.model, "messages": self.messages, "stream": True, "tools": TOOLS}
        try:
            await self._stream(turn, base_url, body, on_text)
        except httpx.HTTPError as error:
            turn.error = repr(error)
        turn.ended = time.monotonic()
        self.messages.append({"role": "assistant", "content": turn.text or None, **({"tool_calls": turn.calls} if turn.calls else {})})
        self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": "Found: item 12."} for call in turn.calls]
        return turn

    async def _stream(self, turn: Turn, base_url: str, body: Json, on_text: Callable[[], None] | None) -> None:
        async with self.http.stream("POST", f"{base_url}/chat/completions", json=body, headers=self.headers) as answer:
            turn.head = time.monotonic()
            turn.status = answer.status_code
            turn.run = answer.headers.get("x-luftpause-run-id", "")
            turn.replica = answer.headers.get("x-luftpause-replica", "")
            turn.held_ms = float(answer.headers.get("x-luftpause-held-ms", "0"))
            turn.hold_reason = answer.headers.get("x-luftpause-hold-reason", "")
            page = bytearray()
            async for part in answer.aiter_raw():
                page += part
                if on_text:
                    on_text()
        turn.error = _read(turn, bytes(page))

    async def loop(self, where: Callable[[int], str], tool_seconds: float) -> None:
        """Turns until one calls no tool or fails; the n-th goes to `where(n)`."""
        while True:
            turn = await self.turn(where(len(self.turns)))
            if turn.error or not turn.calls:
                return
            await asyncio.sleep(tool_seconds)  # the tool works

    @property
    def runs(self) -> set[str]:
        return {turn.run for turn in self.turns}

    @property
    def homes(self) -> set[str]:
        return {turn.replica for turn in self.turns}


def _read(turn: Turn, page: bytes) -> str:
    """What is wrong with the answer, or nothing."""
    if turn.status != 200:
        return f"{turn.status} {page!r}"
    events = [line.removeprefix(b"data: ") for line in page.split(b"\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        return f"the stream ended early: {page[-200:]!r}"
    calls: dict[int, Json] = {}
    for event in events[:-1]:
        chunk = orjson.loads(event)
        if "error" in chunk:
            return f"an error within the stream: {event!r}"
        for choice in chunk["choices"]:
            turn.text += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] = part.get("id") or call["id"]
                call["function"]["name"] += part["function"].get("name") or ""
                call["function"]["arguments"] += part["function"].get("arguments") or ""
    turn.calls = [calls[index] for index in sorted(calls)]
    return ""


def errors_of(agents: Sequence[Agent]) -> list[str]:
    return [turn.error for agent in agents for turn in agent.turns if turn.error]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
