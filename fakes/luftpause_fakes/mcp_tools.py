"""Which tools does the fake MCP server offer, and what does a call do?"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from mcp import types
from msgspec import Struct

from luftpause_fakes.mcp_texts import found

Json = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
CALLS_MAX = 100_000  # distinct calls that are counted
NOTES_MAX = 10_000
PROBLEMS_MAX = 5
TRACES_MAX = 64


class McpOptions(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 7100
    lookup_seconds: float = 1.0
    deep_search_seconds: float = 10.0
    flaky_failures: int = 1  # how often `flaky` fails before it works, per arguments
    big_result_bytes: int = 3_000_000
    page_size: int = 0  # tools per page of tools/list; 0: all
    log: Path | None = None  # one JSON line per started, finished and cancelled call


class Tools:
    """The tools with what they remember: how often each call was started, finished and cancelled, and what was recorded."""

    def __init__(self, options: McpOptions) -> None:
        self.options = options
        self.started: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()  # finished, by tool and arguments
        self.recorded: list[str] = []
        self.deleted: list[str] = []
        self.traceparents: deque[str] = deque(maxlen=TRACES_MAX)  # of the newest calls
        self._flaky: Counter[str] = Counter()
        self._do: dict[str, Callable[[Json], Awaitable[types.CallToolResult]]] = {
            "lookup": self._lookup,
            "deep_search": self._deep_search,
            "delete_note": self._delete_note,
            "flaky": self._flaky_lookup,
            "big_result": self._big_result,
            "picture": self._picture,
            "record": self._record,
            "add": self._add,
        }

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> types.CallToolResult:
        """The result, an error result for bad arguments and unknown tools; only cancellation raises."""
        if traceparent:
            self.traceparents.append(traceparent)
        tool = next((tool for tool in TOOLS if tool.name == name), None)
        if tool is None:
            return text(f"unknown tool {name!r}; there are {', '.join(sorted(self._do))}", failed=True)
        problems = [problem.message for problem in Draft202012Validator(tool.input_schema).iter_errors(arguments)]
        if problems:
            return text(f"bad arguments for {name}: {'; '.join(problems[:PROBLEMS_MAX])}", failed=True)
        self._note("started", name, arguments, self.started)
        try:
            result = await self._do[name](arguments)
        except asyncio.CancelledError:
            self._note("cancelled", name, arguments, self.cancelled)
            raise
        self._note("finished", name, arguments, self.finished)
        self._count(name, arguments)
        return result

    def counts(self) -> Json:
        """What GET /_fake shows; `calls` are the finished ones by tool and arguments."""
        return {
            "started": dict(self.started),
            "finished": dict(self.finished),
            "cancelled": dict(self.cancelled),
            "running": {name: left for name in self.started if (left := self.started[name] - self.finished[name] - self.cancelled[name])},
            "calls": [{"tool": tool, "arguments": orjson.loads(key), "finished": number} for (tool, key), number in self.calls.items()],
            "twice": [
                {"tool": tool, "arguments": orjson.loads(key), "finished": number}
                for (tool, key), number in self.calls.items()
                if number > 1
            ],
            "recorded": self.recorded,
            "deleted": self.deleted,
            "traceparents": list(self.traceparents),
        }

    def reset(self) -> None:
        for counter in (self.started, self.finished, self.cancelled, self._flaky):
            counter.clear()
        self.calls.clear()
        self.recorded.clear()
        self.deleted.clear()

    def _count(self, name: str, arguments: Json) -> None:
        key = (name, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode())
        if key in self.calls or len(self.calls) < CALLS_MAX:
            self.calls[key] += 1

    def _note(self, what: str, name: str, arguments: Json, counter: Counter[str]) -> None:
        counter[name] += 1
        if self.options.log is not None:
            with self.options.log.open("ab") as log:
                log.write(orjson.dumps({"event": what, "tool": name, "arguments": arguments}, option=orjson.OPT_APPEND_NEWLINE))

    async def _lookup(self, arguments: Json) -> types.CallToolResult:
        await asyncio.sleep(self.options.lookup_seconds)
        return text(found(arguments["query"]))

    async def _deep_search(self, arguments: Json) -> types.CallToolResult:
        await asyncio.sleep(self.options.deep_search_seconds)
        return text(found(arguments["query"], deep=True))

    async def _delete_note(self, arguments: Json) -> types.CallToolResult:
        if len(self.deleted) < NOTES_MAX:
            self.deleted.append(arguments["id"])
        return text(f"Note {arguments['id']} is deleted.")

    async def _flaky_lookup(self, arguments: Json) -> types.CallToolResult:
        query = arguments["query"]
        self._flaky[query] += 1
        if self._flaky[query] <= self.options.flaky_failures:
            return text("the source is not reachable, try again", failed=True)
        return text(found(query))

    async def _big_result(self, arguments: Json) -> types.CallToolResult:
        line = "A long line of a long result that somebody asked for.\n"
        size: int = arguments.get("bytes", self.options.big_result_bytes)
        return text((line * (size // len(line) + 1))[:size])

    async def _picture(self, _: Json) -> types.CallToolResult:
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="A picture of one pixel."),
                types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            ]
        )

    async def _record(self, arguments: Json) -> types.CallToolResult:
        if len(self.recorded) < NOTES_MAX:
            self.recorded.append(arguments["text"])
        return text(f"Recorded as number {len(self.recorded)}.")

    async def _add(self, arguments: Json) -> types.CallToolResult:
        return text(str(arguments["a"] + arguments["b"]))


def text(content: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=content)], is_error=failed)


def _tool(name: str, description: str, properties: Json, required: list[str], **hints: bool) -> types.Tool:
    schema: Json = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    annotations = types.ToolAnnotations(
        read_only_hint=hints.get("read_only", False),
        destructive_hint=hints.get("destructive", False),
        idempotent_hint=hints.get("idempotent", False),
        open_world_hint=False,
    )
    return types.Tool(name=name, description=description, input_schema=schema, annotations=annotations)


_QUERY: Json = {"query": {"type": "string", "minLength": 1, "description": "What to look for."}}

TOOLS: tuple[types.Tool, ...] = (
    _tool("lookup", "Look a question up in one source.", _QUERY, ["query"], read_only=True, idempotent=True),
    _tool("deep_search", "Search several sources; takes long.", _QUERY, ["query"], read_only=True, idempotent=True),
    _tool("delete_note", "Delete a note for good.", {"id": {"type": "string", "description": "The note's id."}}, ["id"], destructive=True),
    _tool("flaky", "Look a question up in a source that often fails.", _QUERY, ["query"], read_only=True, idempotent=True),
    _tool(
        "big_result",
        "Return a very long text.",
        {"bytes": {"type": "integer", "minimum": 1, "maximum": 50_000_000, "description": "Its length."}},
        [],
        read_only=True,
        idempotent=True,
    ),
    _tool("picture", "Return a text and a picture.", {}, [], read_only=True, idempotent=True),
    _tool(
        "record", "Write a line into the record; each call adds one.", {"text": {"type": "string", "description": "The line."}}, ["text"]
    ),
    _tool(
        "add",
        "Add two numbers.",
        {"a": {"type": "integer", "description": "First."}, "b": {"type": "integer", "description": "Second."}},
        ["a", "b"],
        read_only=True,
        idempotent=True,
    ),
)
