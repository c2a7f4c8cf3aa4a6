"""An OTLP collector that remembers the spans it was sent."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Seen:
    """One span. Ids are hex, `parent` empty for a root; `error` is the status' message."""

    service: str
    name: str
    kind: int
    trace: str
    span: str
    parent: str
    start: int
    end: int
    error: str
    attributes: dict[str, Any]


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    spans: list[Seen] = field(default_factory=list[Seen])
    port: int = 0

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's own name
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_seen(service, span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that are to send their spans here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}", "OTEL_EXPORTER_OTLP_INSECURE": "true"}

    def named(self, beginning: str) -> list[Seen]:
        return [span for span in self.spans if span.name.startswith(beginning)]

    async def until(self, true: Callable[[], bool], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.05)  # polling: other processes send them


def _seen(service: str, span: Any) -> Seen:
    return Seen(
        service, span.name, span.kind, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.start_time_unix_nano,
        span.end_time_unix_nano, span.status.message if span.status.code == 2 else "", _attributes(span.attributes),
    )  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextlib.asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    collector = Collector()
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(0)
