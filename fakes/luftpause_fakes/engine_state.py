"""What does one fake engine remember while it runs?"""

import secrets
from collections import Counter, deque
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from luftpause.kit.clock import Clock, monotonic
from luftpause_fakes import engine_metrics
from luftpause_fakes.engine_asked import BadRequestError
from luftpause_fakes.engine_faults import Faults, changed
from luftpause_fakes.engine_host import EngineHost, Gpu
from luftpause_fakes.engine_model import Gauges
from luftpause_fakes.engine_options import EngineOptions

Json = dict[str, Any]
NAMES_MAX = 10_000  # header names, run ids and tasks that are counted
RESPONSES_MAX = 1_000  # that are kept
TRACES_MAX = 64  # of the newest turns
LOOKS_MAX = 10_000  # at gauges that are told late


class Kept(Struct, frozen=True):
    """A stored response: the conversation up to its end, as Chat Completions has it, and how it was answered."""

    id: str
    messages: list[Json]
    whole: Json = {}


class Seen(Struct):
    """What clients did, as GET /_fake shows it; a `turn` is a POST that reached the script or was refused."""

    turns: int = 0
    finished: int = 0
    aborted: int = 0  # the client left before the end
    refused: int = 0  # by the engine: queue full, too long
    failed: int = 0  # by order of a fault
    bad: int = 0  # 4xx
    running_peak: int = 0
    waiting_peak: int = 0


class EngineState:
    """On a GPU of its own if none is given. Raises FaultError if the options name an impossible fault."""

    def __init__(self, options: EngineOptions, gpu: Gpu | None = None, clock: Clock = monotonic) -> None:
        self.options = options
        self.flavour = options.details()
        self.host = EngineHost(options.params(), gpu or Gpu(options.speed))
        self.faults = changed(Faults(), options.faults.encode())
        self.seen = Seen()
        self.headers: Counter[str] = Counter()
        self.run_ids: Counter[str] = Counter()
        self.traceparents: deque[str] = deque(maxlen=TRACES_MAX)
        self._boot = secrets.token_hex(4)
        self._numbers = 0
        self._frozen = (0, 0)
        self._kept: dict[str, Kept] = {}
        self._clock = clock
        self._looks: deque[tuple[float, Gauges]] = deque(maxlen=LOOKS_MAX)

    def keep(self, kept: Kept, whole: Json) -> None:
        """Store a response; the oldest one goes if there are too many."""
        self._kept[kept.id] = Kept(kept.id, kept.messages, whole)
        if len(self._kept) > RESPONSES_MAX:
            del self._kept[next(iter(self._kept))]

    def kept(self, response: str) -> Kept:
        """Raises BadRequestError."""
        if response not in self._kept:
            raise BadRequestError(f"Response with id '{response}' not found.", 404)
        return self._kept[response]

    def forget(self, response: str) -> None:
        """Raises BadRequestError."""
        del self._kept[self.kept(response).id]

    def next_id(self) -> str:
        """A fresh id that no other engine gives."""
        self._numbers += 1
        return f"{self._boot}{self._numbers:08x}"

    def note(self, request: Request) -> None:
        """Count a turn and what its head carries."""
        self.seen.turns += 1
        for name in request.headers:
            _count(self.headers, name)
        if run_id := request.headers.get("x-luftpause-run-id"):
            _count(self.run_ids, run_id)
        if traceparent := request.headers.get("traceparent"):
            self.traceparents.append(traceparent)

    def note_load(self) -> None:
        gauges = self.host.engine.gauges()
        self.seen.running_peak = max(self.seen.running_peak, gauges.running)
        self.seen.waiting_peak = max(self.seen.waiting_peak, gauges.waiting)

    def order(self, body: bytes) -> None:
        """POST /_fake. Raises FaultError."""
        gauges = self.host.engine.gauges()
        self._frozen = (gauges.running, gauges.waiting)
        self.faults = changed(self.faults, body)

    def claimed(self) -> Gauges:
        """As the engine tells them."""
        faults, gauges = self.faults, self._aged(self.host.engine.gauges())
        if faults.gauges in {"frozen", "zero"}:
            running, waiting = self._frozen if faults.gauges == "frozen" else (0, 0)
            gauges = replace(gauges, running=running, waiting=waiting)
        claims = {"running": faults.claim_running, "waiting": faults.claim_waiting, "kv_tokens": faults.claim_kv_tokens}
        return replace(gauges, **{name: value for name, value in claims.items() if value is not None})

    def _aged(self, gauges: Gauges) -> Gauges:
        """The newest of those that were looked at long enough ago."""
        age, now = self.faults.gauges_age_seconds, self._clock()
        if not age:
            return gauges
        self._looks.append((now, gauges))
        while len(self._looks) > 1 and self._looks[1][0] <= now - age:
            self._looks.popleft()
        return self._looks[0][1]

    def metrics(self) -> str:
        snapshot = engine_metrics.Snapshot(
            model=self.options.model,
            gauges=self.claimed(),
            counters=self.host.engine.counters,
            by_priority=self.options.priority == "sglang",
        )
        return engine_metrics.page(self.options.flavour, snapshot)

    def shown(self) -> Json:
        """GET /_fake."""
        gauges = self.host.engine.gauges()
        return {
            **msgspec.to_builtins(self.seen),
            "running": gauges.running,
            "waiting": gauges.waiting,
            "kv_used": gauges.kv_used,
            "kv_cached": gauges.kv_cached,
            "late": msgspec.to_builtins(self.host.gpu.late),
            "engine": msgspec.to_builtins(self.host.engine.counters),
            "headers": dict(self.headers),
            "run_ids": dict(self.run_ids),
            "traceparents": list(self.traceparents),
            "faults": msgspec.to_builtins(self.faults),
        }


def _count(counter: Counter[str], name: str) -> None:
    if name in counter or len(counter) < NAMES_MAX:
        counter[name] += 1
