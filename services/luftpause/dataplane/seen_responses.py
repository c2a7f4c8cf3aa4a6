"""What does an OpenAI Responses answer say about its turn?"""

import re
from typing import Any, Final, TypedDict

import msgspec

from luftpause.dataplane.observe import Json, Observed, as_count, as_object, as_objects, as_text, error_text
from luftpause.dataplane.turns import Usage

TELLING: Final = re.compile(
    rb'"(?:type"\s*:\s*"(?:response\.(?:created|completed|incomplete|failed|cancelled|output_item\.)|error")|error"\s*:\s*[{"])'
)
OF_RESPONSE: Final = frozenset({f"response.{each}" for each in ("created", "completed", "incomplete", "failed", "cancelled")})
OF_ITEM: Final = frozenset({"response.output_item.added", "response.output_item.done"})


class Item(TypedDict, total=False):
    type: Any
    call_id: Any
    name: Any
    content: Any


class Response(TypedDict, total=False):
    id: Any
    status: Any
    store: Any
    usage: Any
    error: Any
    incomplete_details: Any
    output: list[Item] | None


class Event(Response, total=False):
    """An event, or the whole answer. Events repeat instructions, tools and texts, which nobody reads here."""

    type: Any
    object: Any
    message: Any
    delta: Any
    item: Item | None
    response: Response | None


class ResponsesSeen(Observed):
    """`finish_reason` is the status (`completed`, `failed`, `cancelled`), or why the answer is incomplete (`max_output_tokens`)."""

    __slots__ = ()
    telling = TELLING
    known = msgspec.json.Decoder(Event)

    @property
    def paused(self) -> bool:
        """A response with calls is `completed` too; a cut one has not ended in any."""
        return self.calls and self.finish_reason in {"completed", ""}

    def take(self, answer: object) -> None:
        event = as_object(answer)
        kind = as_text(event.get("type"))
        if kind in OF_RESPONSE:
            self._take_response(as_object(event.get("response")), ended=kind != "response.created")
        elif kind in OF_ITEM:
            self._take_item(as_object(event.get("item")))
        elif kind == "error":
            self.error = error_text(event) or as_text(event.get("message")) or "error"
        elif kind.endswith(".delta"):
            if event.get("delta"):
                self.token()
        elif not kind:
            self._take_whole(event)

    def _take_whole(self, answer: Json) -> None:
        """An answer that is no stream, or an error in a form of its own."""
        if answer.get("object") == "response" or "output" in answer:
            self._take_response(answer, ended=True)
        else:
            self.error = error_text(answer) or self.error

    def _take_response(self, response: Json, *, ended: bool) -> None:
        found = as_text(response.get("id"))
        if found and response.get("store") is not False and not self.response:
            self.response = found
            self.news = True
        if not ended:
            return
        for item in as_objects(response.get("output")):
            self._take_item(item)
        self.usage = read_usage(response.get("usage")) or self.usage
        status = as_text(response.get("status"))
        reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        self.finish_reason = reason or status
        self.error = error_text(response) or ("failed" if status == "failed" else self.error)

    def _take_item(self, item: Json) -> None:
        """Calls with a `call_id` are the client's to carry out; those without are the engine's own. A built-in tool has no name."""
        call_id, kind = as_text(item.get("call_id")), as_text(item.get("type"))
        if kind.endswith("_call") and "call_id" in item:
            self.call(call_id, as_text(item.get("name")) or kind.removesuffix("_call"))
            self.token()


def read_usage(value: object) -> Usage | None:
    """None if it has no counts."""
    usage = as_object(value)
    prompt, completion = as_count(usage.get("input_tokens")), as_count(usage.get("output_tokens"))
    if prompt is None and completion is None:
        return None
    return Usage(prompt or 0, completion or 0, as_count(as_object(usage.get("input_tokens_details")).get("cached_tokens")))
