"""What does a trace show of a proxied turn?"""

from typing import TYPE_CHECKING, Final

from luftpause.kit.trace_context import TraceContext
from luftpause.kit.tracing import Span, Tracer

if TYPE_CHECKING:
    from luftpause.dataplane.formats import Format
    from luftpause.dataplane.identify import Identity
    from luftpause.dataplane.observe import Observed
    from luftpause.dataplane.turns import Placement

TRACEPARENT: Final = b"traceparent:"
OPERATIONS: Final = {"completions": "text_completion", "embeddings": "embeddings"}  # all others are chats
FIRST_ERROR: Final = 400


class TurnSpan:
    """From the request to the end of its answer; the engine's and the scheduler's own spans are its children."""

    __slots__ = ("_error", "_span")

    def __init__(self, tracer: Tracer, api: "Format", identity: "Identity", model: str, turn: str) -> None:
        operation = OPERATIONS.get(api.api, "chat")
        self._error = ""
        self._span: Span = tracer.begin(
            f"{operation} {model}",
            parent=identity.traceparent,
            kind="server",
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.request.model": model,
                "luftpause.class": identity.turn_class.value,
                "luftpause.turn_id": turn,
                "url.path": api.route,
            },
        )

    @property
    def context(self) -> TraceContext:
        return self._span.context

    @property
    def header(self) -> str:
        return self._span.header

    def answered(self, status: int, seen: "Observed") -> None:
        span, usage = self._span, seen.usage
        span.set("http.response.status_code", status)
        if usage is not None:
            span.set("gen_ai.usage.input_tokens", usage.prompt)
            span.set("gen_ai.usage.output_tokens", usage.completion)
            if usage.cached is not None:
                span.set("gen_ai.usage.cache_read.input_tokens", usage.cached)
        if seen.finish_reason:
            span.set("gen_ai.response.finish_reasons", [seen.finish_reason])
        if status >= FIRST_ERROR or seen.error:
            self.failed(seen.error or f"engine_error {status}")

    def failed(self, why: str, status: int = 0) -> None:
        """The first reason counts."""
        self._error = self._error or why
        if status:
            self._span.set("http.response.status_code", status)

    def end(self, run: str, placement: "Placement | None") -> None:
        span = self._span
        if run:
            span.set("luftpause.run_id", run)
        if placement is not None:
            span.set("luftpause.replica", placement.replica.name)
            span.set("luftpause.held_ms", placement.held_ms)
        if self._error:
            span.set("error.type", self._error.partition(" ")[0])
        span.end(self._error)


def with_traceparent(headers: bytes, traceparent: str) -> bytes:
    """Header lines as they go on, with this one instead of the client's. Names are in lower case."""
    lines = [line for line in headers.split(b"\r\n") if line and not line.startswith(TRACEPARENT)]
    return b"".join([line + b"\r\n" for line in lines]) + b"traceparent: %b\r\n" % traceparent.encode()
