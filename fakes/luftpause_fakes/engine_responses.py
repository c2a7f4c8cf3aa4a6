"""How does OpenAI's Responses API ask, and how is it answered?"""

from collections.abc import Iterator
from typing import Any

from luftpause_fakes.engine_asked import Asked, BadRequestError, Json, Written, called, flag, function, listed, number, priority_of
from luftpause_fakes.engine_chat import schema_of
from luftpause_fakes.engine_messages import event
from luftpause_fakes.engine_model import Finished
from luftpause_fakes.engine_text import pieces, text_of

Named = tuple[str, Json]  # an event's type and its data
HEAD_EVENTS = 2


def read_responses(asked: Json) -> Asked:
    """`messages` are those of this request only: what came before `previous` is kept by the engine. Raises BadRequestError."""
    if asked.get("background"):
        raise BadRequestError("background responses are not supported")
    tools, spaces = _tools(listed(asked.get("tools"), "tools"))
    messages = _messages(asked, {pair: name for name, pair in spaces.items()})
    text: Json = asked.get("text") or {}
    return Asked(
        messages=messages, tools=tools, tool_choice=_choice(asked.get("tool_choice")), schema=schema_of(text.get("format")),
        tokens_max=number(asked, "max_output_tokens"), stream=flag(asked, "stream"), include_usage=True, spaces=spaces,
        store=asked.get("store") is not False, previous=str(asked.get("previous_response_id") or ""), priority=priority_of(asked),
    )  # fmt: skip


def _tools(given: list[Json]) -> tuple[list[Json], dict[str, tuple[str, str]]]:
    """Functions, also those of a namespace; other kinds of tools are the client's or the vendor's affair."""
    tools: list[Json] = []
    spaces: dict[str, tuple[str, str]] = {}
    for tool in given:
        if tool.get("type") == "namespace":
            space = str(tool.get("name"))
            for inner in listed(tool.get("tools"), "tools"):
                name = f"{space}{inner.get('name')}"
                spaces[name] = (space, str(inner.get("name")))
                tools.append(function(name, inner.get("parameters"), inner.get("description")))
        elif tool.get("type") == "function":
            tools.append(function(tool.get("name"), tool.get("parameters"), tool.get("description")))
    return tools, spaces


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice or "auto"
    named: Json = choice  # pyright: ignore[reportUnknownVariableType]
    return {"type": "function", "function": {"name": named["name"]}} if "name" in named else "auto"


def _messages(asked: Json, names: dict[tuple[str, str], str]) -> list[Json]:
    given: Any = asked.get("input")
    if not given or not isinstance(given, str | list):
        raise BadRequestError("'input' is required and must be a text or a list of objects")
    items: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else listed(given, "input")
    instructions = text_of(asked.get("instructions"))
    messages: list[Json] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        match item.get("type", "message"):
            case "message":
                role = {"developer": "system"}.get(str(item.get("role")), item.get("role"))
                messages.append({"role": role, "content": text_of(item.get("content"))})
            case "function_call":
                pair = (str(item.get("namespace") or ""), str(item.get("name")))
                _join(messages, called(item.get("call_id"), names.get(pair, pair[1]), item.get("arguments")))
            case "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text_of(item.get("output"))})
            case _:
                pass
    return messages


def _join(messages: list[Json], call: Json) -> None:
    """Calls that stand one after the other are one answer."""
    if messages and messages[-1]["role"] == "assistant":
        messages[-1].setdefault("tool_calls", []).append(call)
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


class ResponseWriter(Written, frozen=True):
    """Writes an answer as a response with output items."""

    def deltas(self) -> list[bytes]:
        return [self._event(number, named) for number, named in enumerate(self._events(), HEAD_EVENTS)]

    def head(self) -> bytes:
        opening = self._response("in_progress", [], None)
        names = ("response.created", "response.in_progress")
        return b"".join(self._event(number, (name, {"response": opening})) for number, name in enumerate(names))

    def part(self, delta: bytes, prompt_tokens: int, tokens: int) -> bytes:
        del prompt_tokens, tokens
        return delta

    def end(self, finished: Finished) -> bytes:
        whole = self.whole(finished)
        return self._event(HEAD_EVENTS + sum(1 for _ in self._events()), (f"response.{whole['status']}", {"response": whole}))

    def whole(self, finished: Finished) -> Json:
        return self._response("incomplete" if self.answer.finish == "length" else "completed", self._items(), self._usage(finished))

    def failed(self, error: Json) -> bytes:
        inner: Json = error.get("error") or error
        broken = {**self._response("failed", [], None), "error": {"code": "server_error", "message": inner.get("message")}}
        return self._event(HEAD_EVENTS, ("response.failed", {"response": broken}))

    def _event(self, number: int, named: Named) -> bytes:
        name, data = named
        return event(name, {"sequence_number": number, **data})

    def _events(self) -> Iterator[Named]:
        for index, item in enumerate(self._items()):
            if item["type"] == "message":
                yield from self._said(index, item)
            else:
                yield from self._called(index, item)

    def _said(self, index: int, item: Json) -> Iterator[Named]:
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        part: Json = item["content"][0]
        yield "response.output_item.added", {"output_index": index, "item": {**item, "status": "in_progress", "content": []}}
        yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**at, "part": part}
        yield "response.output_item.done", {"output_index": index, "item": item}

    def _called(self, index: int, item: Json) -> Iterator[Named]:
        at = {"item_id": item["id"], "output_index": index}
        yield "response.output_item.added", {"output_index": index, "item": {**item, "status": "in_progress", "arguments": ""}}
        for piece in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {**at, "delta": piece}
        yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}
        yield "response.output_item.done", {"output_index": index, "item": item}

    def _items(self) -> list[Json]:
        said: Json = {"type": "output_text", "text": self.answer.text, "annotations": [], "logprobs": []}
        message: Json = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
        items: list[Json] = [message] if self.answer.text else []
        for place, call in enumerate(self.answer.calls):
            space, name = self.asked.spaces.get(call.name, ("", call.name))
            item = {"id": f"fc_{self.id}{place}", "type": "function_call", "status": "completed", "call_id": call.id, "name": name}
            items.append({**item, "arguments": call.arguments, **({"namespace": space} if space else {})})
        return items

    def _response(self, status: str, output: list[Json], usage: Json | None) -> Json:
        return {
            "id": self.response_id, "object": "response", "created_at": self.created, "model": self.model, "status": status,
            "output": output, "usage": usage, "error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None, "tool_choice": "auto",
            "tools": [], "temperature": 1.0, "top_p": 1.0, "previous_response_id": self.asked.previous or None, "store": self.asked.store,
        }  # fmt: skip

    @property
    def response_id(self) -> str:
        return f"resp_{self.id}"

    def _usage(self, finished: Finished) -> Json:
        return {
            "input_tokens": finished.prompt_tokens, "input_tokens_details": {"cached_tokens": self.cached(finished)},
            "output_tokens": finished.answer_tokens, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": finished.prompt_tokens + finished.answer_tokens,
        }  # fmt: skip
