"""Which of OpenTelemetry's spans are ours, and which of its exporters sends them? Imported only where tracing is on."""

import os
import socket
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from luftpause.kit.tracing import Record

KINDS: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
FLAGS: Final = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter:
    """Reads the usual OTEL_EXPORTER_OTLP_… variables; gRPC unless the protocol is http/protobuf."""

    def __init__(self, service: str, version: str) -> None:
        named = {
            "service.name": f"luftpause-{service}",
            "service.version": version,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
        self._resource = Resource.create(named)
        self._scope = InstrumentationScope("luftpause", version)
        self._exporter = _exporter()

    def export(self, records: Sequence[Record]) -> None:
        if self._exporter.export([self._span(record) for record in records]) is not SpanExportResult.SUCCESS:
            raise ConnectionError("the collector did not take them")

    def close(self) -> None:
        self._exporter.shutdown()

    def _span(self, record: Record) -> ReadableSpan:
        trace = int(record.trace, 16)
        parent = SpanContext(trace, int(record.parent, 16), is_remote=True, trace_flags=FLAGS) if record.parent else None
        return ReadableSpan(
            record.name,
            context=SpanContext(trace, int(record.span, 16), is_remote=False, trace_flags=FLAGS),
            parent=parent,
            resource=self._resource,
            attributes=record.attributes,
            kind=KINDS[record.kind],
            instrumentation_scope=self._scope,
            status=Status(StatusCode.ERROR, record.error) if record.error else Status(StatusCode.UNSET),
            start_time=record.start_ns,
            end_time=record.end_ns,
        )


def _exporter() -> Any:
    protocol = os.environ.get(TRACES_PROTOCOL, "").strip() or os.environ.get(PROTOCOL, "").strip() or "grpc"
    if protocol.startswith("http"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
