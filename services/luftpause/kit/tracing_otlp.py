"""How do spans go to a collector by OTLP? Imported only where tracing is on.

The messages and the gRPC stub are OpenTelemetry's own package of them; its SDK costs ten times as much for each span.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from luftpause.kit.errors import ConfigError
from luftpause.kit.tracing import ENDPOINT, TRACES_ENDPOINT, Record, Value, endpoint

KINDS: Final = {"internal": Span.SPAN_KIND_INTERNAL, "server": Span.SPAN_KIND_SERVER, "client": Span.SPAN_KIND_CLIENT}
TIMEOUT_SECONDS: Final = 10.0
TRACES_PATH: Final = "/v1/traces"
GRPC, HTTP = "grpc", "http/protobuf"


class Wire(Protocol):
    def send(self, request: ExportTraceServiceRequest) -> None: ...

    def close(self) -> None: ...


class OtlpExporter:
    """Reads OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL (grpc, http/protobuf), _HEADERS, _TIMEOUT, _CERTIFICATE; those with _TRACES_ first."""

    def __init__(self, service: str, version: str, environment: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigError where a variable can't be meant so."""
        named: dict[str, Value] = {
            "service.name": environment.get("OTEL_SERVICE_NAME", "").strip() or f"luftpause-{service}",
            "service.version": version,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            **_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        }
        self._resource = Resource(attributes=_attributes(named))
        self._scope = InstrumentationScope(name="luftpause", version=version)
        self._wire = _wire(environment)

    def export(self, records: Sequence[Record]) -> None:
        spans = ScopeSpans(scope=self._scope, spans=[_span(record) for record in records])
        self._wire.send(ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=self._resource, scope_spans=[spans])]))

    def close(self) -> None:
        self._wire.close()


def _span(record: Record) -> Span:
    return Span(
        trace_id=bytes.fromhex(record.trace),
        span_id=bytes.fromhex(record.span),
        parent_span_id=bytes.fromhex(record.parent),
        name=record.name,
        kind=KINDS[record.kind],
        start_time_unix_nano=record.start_ns,
        end_time_unix_nano=record.end_ns,
        attributes=_attributes(record.attributes),
        status=Status(code=Status.STATUS_CODE_ERROR, message=record.error) if record.error else None,
        flags=1,
    )


def _attributes(named: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in named.items()]


def _value(value: Value) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=each) for each in value]))


# ---- where they go ----------------------------------------------------------------------------------------------


def _wire(environment: Mapping[str, str]) -> Wire:
    url, protocol = endpoint(environment), _said(environment, "PROTOCOL") or GRPC
    if protocol not in {GRPC, HTTP}:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; it can be {GRPC} or {HTTP}")
    headers = _pairs(_said(environment, "HEADERS"))
    seconds = _seconds(environment)
    if protocol == HTTP:
        whole = url if environment.get(TRACES_ENDPOINT, "").strip() else url.rstrip("/") + TRACES_PATH
        return _Http(whole, headers, seconds, _said(environment, "CERTIFICATE"))
    return _Grpc(url, headers, seconds, _said(environment, "CERTIFICATE"))


class _Grpc:
    def __init__(self, url: str, headers: Mapping[str, str], seconds: float, certificate: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if not parts.hostname:
            raise ConfigError(f"{ENDPOINT} is {url!r}; write it as http://host:4317")
        if parts.scheme == "https":
            roots = _read(certificate) if certificate else None
            self._channel: Any = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(roots))
        else:
            self._channel = grpc.insecure_channel(parts.netloc)
        self._export: Any = TraceServiceStub(self._channel).Export
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())
        self._seconds = seconds

    def send(self, request: ExportTraceServiceRequest) -> None:
        self._export(request, timeout=self._seconds, metadata=self._metadata)

    def close(self) -> None:
        self._channel.close()


class _Http:
    def __init__(self, url: str, headers: Mapping[str, str], seconds: float, certificate: str) -> None:
        self._url = url
        given = {**headers, "content-type": "application/x-protobuf"}
        self._client = httpx.Client(headers=given, timeout=seconds, **({"verify": certificate} if certificate else {}))  # pyright: ignore[reportArgumentType]

    def send(self, request: ExportTraceServiceRequest) -> None:
        self._client.post(self._url, content=request.SerializeToString()).raise_for_status()

    def close(self) -> None:
        self._client.close()


def _said(environment: Mapping[str, str], name: str) -> str:
    """What is said for traces goes before what is said for all."""
    own = environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
    return own or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()


def _seconds(environment: Mapping[str, str]) -> float:
    said = _said(environment, "TIMEOUT")
    try:
        return float(said) if said else TIMEOUT_SECONDS
    except ValueError:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_TIMEOUT is {said!r}; write seconds") from None


def _pairs(text: str) -> dict[str, str]:
    """`name=value,name=value`, percent-encoded as the specification wants it."""
    found = [pair.partition("=") for pair in text.split(",") if "=" in pair]
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in found}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the variable has it
            return file.read()
    except OSError as error:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_CERTIFICATE: {path} can't be read ({error.strerror})") from error
