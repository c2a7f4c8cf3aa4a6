"""Are traces read as the standard says, and does telling of them never stand in anybody's way?"""

import threading
from collections.abc import Sequence

import pytest

from luftpause.dataplane.turn_span import with_traceparent
from luftpause.kit import trace_context, tracing
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.trace_context import TraceContext
from luftpause.kit.tracing import Record, Tracer

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Kept:
    """An exporter that keeps them; `gate` lets it go on."""

    def __init__(self, *, fails: bool = False) -> None:
        self.records: list[Record] = []
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False
        self._fails = fails

    def export(self, records: Sequence[Record]) -> None:
        self.gate.wait(30)
        if self._fails:
            raise ConnectionError("away")
        self.records += records

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("header", "context"),
    [
        (PARENT, TraceContext(TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-00", TraceContext(TRACE, SPAN, sampled=False)),
        (f"00-{TRACE}-{SPAN}-03", TraceContext(TRACE, SPAN)),
        (f"cc-{TRACE}-{SPAN}-01-later", TraceContext(TRACE, SPAN)),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT.upper(), None),
        ("", None),
        ("nonsense", None),
    ],
)
def test_a_traceparent_is_read_or_counts_as_none(header: str, context: TraceContext | None) -> None:
    assert trace_context.read(header) == context
    if context is not None:
        assert trace_context.read(context.header()) == context


def test_spans_are_told_in_the_end_with_their_parents() -> None:
    kept = Kept()
    tracer = Tracer(kept, pause_seconds=0.01)
    outer = tracer.begin("outer", parent=PARENT)
    inner = tracer.begin("inner", parent=outer.header, kind="client", attributes={"a": 1})
    inner.set("b", "two")
    inner.end("went wrong")
    inner.end()  # once is enough
    outer.end()
    tracer.stop()
    assert kept.closed
    assert [(record.name, record.trace, record.parent, record.error) for record in kept.records] == [
        ("inner", TRACE, outer.context.span, "went wrong"),
        ("outer", TRACE, SPAN, ""),
    ]
    assert dict(kept.records[0].attributes) == {"a": 1, "b": "two"}
    assert all(record.start_ns <= record.end_ns for record in kept.records)


def test_a_root_begins_a_trace_of_its_own() -> None:
    kept = Kept()
    tracer = Tracer(kept)
    one, other = tracer.begin("a"), tracer.begin("b", parent="nonsense")
    assert one.context.trace != other.context.trace
    one.end()
    other.end()
    tracer.stop()
    assert [record.parent for record in kept.records] == ["", ""]


def test_an_exporter_that_hangs_costs_spans_and_nothing_else() -> None:
    kept = Kept()
    kept.gate.clear()
    tracer = Tracer(kept, queue_max=10, pause_seconds=0.001)
    for _ in range(1_000):
        tracer.begin("x").end()
    assert tracer.dropped >= 1_000 - 10 - 2 * tracing.BATCH_MAX
    tracer.stop(0.01)  # returns, although nothing went out
    kept.gate.set()


def test_an_exporter_that_fails_is_complained_of_once(capfd: pytest.CaptureFixture[str]) -> None:
    tracer = Tracer(Kept(fails=True), pause_seconds=0.001)
    for _ in range(3 * tracing.BATCH_MAX):
        tracer.begin("x").end()
    tracer.stop()
    assert tracer.dropped == 3 * tracing.BATCH_MAX
    assert capfd.readouterr().err.count("can't be exported") <= 1


class SaysDetailsError(RuntimeError):
    def details(self) -> str:
        return "failed to connect: refused"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SaysDetailsError("<_Error of RPC\n  status = UNAVAILABLE\n>"), "SaysDetailsError: failed to connect: refused"),
        (OSError("a\nb"), "OSError: a b"),
    ],
)
def test_an_export_that_fails_is_told_in_one_line(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Kept):
        def export(self, records: Sequence[Record]) -> None:
            raise error

    told: list[str] = []

    def warning(_event: str, *, error: str, endpoint: str) -> None:
        told.append(error)

    monkeypatch.setattr(tracing.log, "warning", warning)
    tracer = Tracer(Fails())
    tracer.begin("x").end()
    tracer.stop()
    assert told == [said]


def test_where_it_is_on_without_its_packages_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:4317")
    monkeypatch.setitem(__import__("sys").modules, "luftpause.kit.tracing_otlp", None)
    with pytest.raises(LuftpauseError, match=r"pip install 'luftpause\[otel\]'"):
        tracing.from_environment("dataplane")


@pytest.mark.parametrize(("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "  ")])
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:4317")
    monkeypatch.setenv(variable, value)
    assert tracing.from_environment("dataplane") is None


def test_the_clients_traceparent_makes_way() -> None:
    lines = b"user-agent: x\r\ntraceparent: 00-a-b-01\r\naccept: y\r\n"
    assert with_traceparent(lines, PARENT) == b"user-agent: x\r\naccept: y\r\ntraceparent: %b\r\n" % PARENT.encode()
