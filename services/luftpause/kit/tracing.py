"""How do spans reach an OTLP collector, at next to no cost for who makes them?

    tracer = tracing.from_environment("dataplane")  # None without OTEL_EXPORTER_OTLP_ENDPOINT: then nothing is imported or sent
    span = tracer.begin("chat fake-1b", parent=traceparent, kind=CLIENT)
    … span.header goes on …
    span.set("gen_ai.usage.input_tokens", 7); span.end()

A span that ends is put into a queue; a thread packs what is there and sends it. A collector that hangs,
refuses or is slow costs spans, never a turn: the queue is bounded.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

from msgspec import Struct

from luftpause import __version__
from luftpause.kit import trace_context
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.kit.trace_context import TraceContext

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
DISABLED: Final = "OTEL_SDK_DISABLED"
QUEUE_MAX: Final = 8_192
BATCH_MAX: Final = 64  # at once: making and packing them holds the interpreter's lock
PAUSE_SECONDS: Final = 0.5
STOP_SECONDS: Final = 3.0

Value = str | int | float | bool | Sequence[str]
Kind = Literal["internal", "server", "client"]

log = Log("tracing")


class Record(Struct, frozen=True, gc=False):
    """A span that has ended. Times in nanoseconds since 1970; `parent` empty: the root of its trace; `error` empty: it went well."""

    name: str
    kind: Kind
    trace: str
    span: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    error: str = ""


class Exporter(Protocol):
    """May block, may raise; used by one thread."""

    def export(self, records: Sequence[Record]) -> None: ...

    def close(self) -> None: ...


class Span:
    """One that has begun. Not recorded where its trace isn't sampled: then it only has a context."""

    __slots__ = ("_attributes", "_tracer", "context", "kind", "name", "parent", "start_ns")

    def __init__(
        self,
        tracer: "Tracer | None",
        name: str,
        kind: Kind,
        context: TraceContext,
        parent: str,
        attributes: dict[str, Value],
        start_ns: int,
    ) -> None:
        self._tracer = tracer
        self.name = name
        self.kind: Kind = kind
        self.context = context
        self.parent = parent
        self._attributes = attributes
        self.start_ns = start_ns

    @property
    def header(self) -> str:
        """`traceparent` for whoever is asked within it."""
        return self.context.header()

    def set(self, name: str, value: Value) -> None:
        self._attributes[name] = value

    def end(self, error: str = "", *, end_ns: int = 0) -> None:
        """Only the first end counts."""
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            context = self.context
            tracer.put(
                Record(
                    self.name, self.kind, context.trace, context.span, self.parent, self.start_ns, end_ns or time.time_ns(),
                    self._attributes, error,
                )
            )  # fmt: skip


class Tracer:
    """Of one process. `begin` and `put` never wait."""

    def __init__(self, exporter: Exporter, *, queue_max: int = QUEUE_MAX, pause_seconds: float = PAUSE_SECONDS) -> None:
        self.dropped = 0
        self._exporter = exporter
        self._queue: deque[Record] = deque()
        self._queue_max = queue_max
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._complained = False
        self._thread.start()

    def begin(
        self, name: str, *, parent: str = "", kind: Kind = "internal", attributes: Mapping[str, Value] | None = None, start_ns: int = 0
    ) -> Span:
        """A child of `parent` (a traceparent), or the root of a new trace."""
        above = trace_context.read(parent)
        if above is not None and not above.sampled:
            return Span(None, name, kind, above, "", {}, 0)
        context = TraceContext(above.trace if above is not None else trace_context.new_trace(), trace_context.new_span())
        return Span(self, name, kind, context, above.span if above is not None else "", dict(attributes or {}), start_ns or time.time_ns())

    def put(self, record: Record) -> None:
        if len(self._queue) >= self._queue_max:
            self.dropped += 1
            return
        self._queue.append(record)

    def stop(self, seconds_max: float = STOP_SECONDS) -> None:
        """What is there is exported, if that takes no longer. Blocks: call it when nothing is served any more."""
        self._stopping.set()
        self._thread.join(seconds_max)

    def _work(self) -> None:
        while not self._stopping.wait(0 if len(self._queue) >= BATCH_MAX else self._pause_seconds):
            self._export()
        while self._queue:
            self._export()
        self._exporter.close()

    def _export(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]
        if not batch:
            return
        try:
            self._exporter.export(batch)
        except Exception as error:  # noqa: BLE001 - tracing must not end a service
            self.dropped += len(batch)
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            log.warning("spans can't be exported; said once", error=_said(error), endpoint=endpoint(os.environ))
        self._complained = True


def _said(error: Exception) -> str:
    """In one line; gRPC's errors, whose text has several, by their details."""
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else "") or str(error)
    return f"{type(error).__name__.lstrip('_')}: {' '.join(text.split())}"


def endpoint(environment: Mapping[str, str]) -> str:
    """Where spans are sent; empty: nowhere."""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return ""
    return environment.get(TRACES_ENDPOINT, "").strip() or environment.get(ENDPOINT, "").strip()


def from_environment(service: str, make: "Callable[[str], Exporter] | None" = None) -> Tracer | None:
    """None: tracing is off. Raises LuftpauseError if it is on and its packages are not there."""
    if not endpoint(os.environ):
        return None
    log.info("spans are exported", endpoint=endpoint(os.environ))
    return Tracer((make or _exporter)(service))


def _exporter(service: str) -> Exporter:
    try:
        from luftpause.kit.tracing_otlp import OtlpExporter
    except ImportError as error:
        raise LuftpauseError(
            f"{ENDPOINT} is set, and {error.name} is not installed; pip install 'luftpause[otel]', or unset it", code="no_otel"
        ) from error
    return OtlpExporter(service, __version__)


@contextlib.asynccontextmanager
async def stopped(tracer: Tracer | None) -> AsyncGenerator[None]:
    """What was put until the end of the block is exported, if that does not take long."""
    try:
        yield
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.stop)
