"""What does an Anthropic Messages answer say about its turn?"""

import re
from typing import Final

from luftpause.dataplane.observe import CUT, Json, Observed, as_count, as_object, as_objects, as_text, error_text
from luftpause.dataplane.turns import Usage

TELLING: Final = re.compile(rb'"(?:type"\s*:\s*"(?:message_start|message_delta|tool_use|error)"|error"\s*:\s*[{"])')
DELTA_KEYS: Final = ("text", "thinking", "partial_json")
COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class MessagesSeen(Observed):
    """`finish_reason` is the `stop_reason`."""

    __slots__ = ("_counts",)
    telling = TELLING

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    @property
    def paused(self) -> bool:
        """Some engines end tool uses with `end_turn`, or say nothing; a cut answer (`max_tokens`) has not ended in any."""
        return self.finish_reason == "tool_use" or (self.calls and self.finish_reason.lower() not in CUT)

    def take(self, answer: object) -> None:
        event = as_object(answer)
        match event.get("type"):
            case "content_block_delta":
                self._take_delta(as_object(event.get("delta")))
            case "content_block_start":
                self._take_block(as_object(event.get("content_block")))
            case "message_start":
                self._take_message(as_object(event.get("message")))
            case "message":
                self._take_message(event)
            case "message_delta":
                self._take_end(as_object(event.get("delta")), event.get("usage"))
            case "error":
                self.error = error_text(event) or "error"
            case _:
                self.error = error_text(event) or self.error

    def _take_delta(self, delta: Json) -> None:
        if any(delta.get(key) for key in DELTA_KEYS):
            self.token()

    def _take_message(self, message: Json) -> None:
        for block in as_objects(message.get("content")):
            self._take_block(block)
        self._take_end(message, message.get("usage"))

    def _take_block(self, block: Json) -> None:
        """`server_tool_use` is the engine's own business."""
        if block.get("type") == "tool_use":
            self.call(as_text(block.get("id")), as_text(block.get("name")))
            self.token()
        elif any(block.get(key) for key in DELTA_KEYS):
            self.token()

    def _take_end(self, said: Json, usage: object) -> None:
        self.finish_reason = as_text(said.get("stop_reason")) or self.finish_reason
        counts = as_object(usage)
        for key in COUNTS:
            count = as_count(counts.get(key))
            if count or (count == 0 and key not in self._counts):  # those at the end complete or correct those at the start
                self._counts[key] = count
        if self._counts:
            self.usage = self._usage()

    def _usage(self) -> Usage:
        """Anthropic's `input_tokens` are those that no cache had; ours are all."""
        counts = self._counts
        prompt = sum(counts.get(key, 0) for key in COUNTS[:3])
        return Usage(prompt, counts.get("output_tokens", 0), counts.get("cache_read_input_tokens"))
