"""How does one turn go through a dataplane, as its relay does it?

Modelled after `dataplane/turn.py`: the same stages, the same facts in the same order, without HTTP.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from luftpause.dataplane.turns import Ask, Placement, Refusal, ReturnReason, Usage
from luftpause_fakes.engine_model import EngineRequest, Finished, Output, Refused, Segment, Token

if TYPE_CHECKING:
    from luftpause_bench.sim.dataplanes import Dataplane

FAILOVER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 0.001


class Work(Struct, frozen=True):
    """What the engine does for this turn. `ids`: of the tool calls that its answer ends in."""

    prompt: tuple[Segment, ...]
    answer: tuple[Segment, ...]
    ids: tuple[str, ...] = ()
    response: str = ""


class Stage(Enum):
    HELD = "held"
    PLACED = "placed"
    SENT = "sent"
    OVER = "over"


class End(Struct, frozen=True):
    """How it ended for its client: served, refused, failed, broken (its dataplane died), left (the client did)."""

    how: str
    status: int = 0
    code: str = ""


class Exchange:
    """One request of a client. It is the turn's `Waiter`; `ended` hears its end once."""

    def __init__(
        self, dataplane: "Dataplane", ask: Ask, work: Work, *, placed: Callable[[Placement], None], ended: Callable[[End], None]
    ) -> None:
        self.ask = ask
        self.stage = Stage.HELD
        self.replica = ""
        self.sent_at = 0.0
        self.reason = ""  # why it is held
        self.tried: set[str] = set()  # replicas that it was placed at
        self._dataplane = dataplane
        self._world = dataplane.world
        self._work = work
        self._placed = placed
        self._ended = ended
        self._attempt = 0
        self._passed = False
        self._died = False
        self._unreachable = False
        self.unasked = False  # it was sent before the scheduler heard of it
        self._asking = True
        dataplane.exchanges[ask.turn] = self
        dataplane.ledger.ask(ask, self)
        self._asking = False

    # ---- Waiter

    def held(self, run: str, reason: str) -> None:
        self._said("held")
        self.reason = reason
        if self._unreachable and reason == "no_replica":
            self._give_up()
        elif self._unreachable:
            self._unreachable = False

    def placed(self, placement: Placement) -> None:
        self._said("placed")
        self._world.promise(placement.attempt > self._attempt, lambda: f"{self.ask.turn} was placed twice in attempt {placement.attempt}")
        self._attempt = placement.attempt
        self.unasked = self._asking
        self._unreachable = False
        self.stage, self.replica = Stage.PLACED, placement.replica.name
        self.tried.add(self.replica)
        self._placed(placement)
        self._dataplane.at(CONNECT_SECONDS, lambda: self._connect(placement.attempt))

    def refused(self, refusal: Refusal) -> None:
        self._said("refused")
        self._finish(End("refused", refusal.status, refusal.code))

    def _said(self, word: str) -> None:
        self._world.promise(self.stage is Stage.HELD, lambda: f"{self.ask.turn} was {word} while it was {self.stage.value}")

    # ---- the engine

    @property
    def _request(self) -> str:
        return f"{self.ask.turn}/{self._attempt}"

    def _connect(self, attempt: int) -> None:
        if self.stage is not Stage.PLACED or attempt != self._attempt:
            return
        engine = self._dataplane.engines[self.replica]
        if not engine.up:
            self._elsewhere()
            return
        self.stage, self.sent_at = Stage.SENT, self._world.now
        self._dataplane.ledger.started(self.ask.turn)
        request = EngineRequest(self._request, self._work.prompt, self._work.answer)
        engine.take(request, lambda output: self._dataplane.do(lambda: self._hear(attempt, output)))

    def _hear(self, attempt: int, output: Output | None) -> None:
        if self.stage is not Stage.SENT or attempt != self._attempt:
            return
        match output:
            case None:
                self._broken()
            case Token(number=number):
                self._token(number)
            case Refused(reason="too_long"):
                self._dataplane.ledger.failed(self.ask.turn, "engine_error")
                self._finish(End("failed", 400, "too_long"))
            case Refused():
                self.stage = Stage.HELD
                self._dataplane.ledger.give_back(self.ask.turn, ReturnReason.BUSY)
            case Finished():
                usage = Usage(output.prompt_tokens, output.answer_tokens, output.cached_tokens)
                paused = bool(self._work.ids)
                reason = "tool_calls" if paused else "stop"
                self._dataplane.ledger.finished(self.ask.turn, reason, usage, paused=paused, tool_call_ids=self._work.ids)
                self._finish(End("served"))
            case _:
                pass

    def _token(self, number: int) -> None:
        ledger, turn = self._dataplane.ledger, self.ask.turn
        if self._dataplane.stream is not None:
            self._dataplane.stream.delivering.add(self.replica)
        if number == 1:
            self._passed = True
            ledger.first_token(turn)
            if self._work.response:
                ledger.response_seen(turn, self._work.response)
        elif number == 2 and self._work.ids:
            ledger.tool_calls_seen(turn, self._work.ids)

    def _broken(self) -> None:
        if not self._passed and not self._died:
            self._died = True
            self._elsewhere()
            return
        self._dataplane.ledger.failed(self.ask.turn, "engine_died")
        self._finish(End("failed", 502, "engine_failed"))

    def _elsewhere(self) -> None:
        self.stage, self._unreachable = Stage.HELD, True
        attempt = self._attempt
        self._dataplane.at(FAILOVER_SECONDS, lambda: self._give_up() if self._unreachable and attempt == self._attempt else None)
        self._dataplane.ledger.suspect(self.replica, "it went away")
        self._dataplane.ledger.give_back(self.ask.turn, ReturnReason.UNREACHABLE)

    def _give_up(self) -> None:
        if self.stage is Stage.HELD:
            self._dataplane.ledger.abandon(self.ask.turn)
            self._finish(End("refused", 502, "engine_unreachable"))

    # ---- ends that don't come from the engine

    def leave(self) -> None:
        """Its client closes the connection, whatever the stage."""
        self._dataplane.do(self._client_left)

    def _client_left(self) -> None:
        if self.stage is Stage.OVER:
            return
        self._world.counts[f"left while {self.stage.value}{' and answering' if self._passed else ''}"] += 1
        self._drop()
        if self.stage is Stage.SENT:
            self._dataplane.ledger.failed(self.ask.turn, "client_left")
        else:
            self._dataplane.ledger.abandon(self.ask.turn)
        self._finish(End("left"))

    def process_died(self) -> None:
        self._drop()
        self._finish(End("broken"))

    def _drop(self) -> None:
        if self.stage is Stage.SENT:
            self._dataplane.engines[self.replica].drop(self._request)

    def _finish(self, end: End) -> None:
        self.stage = Stage.OVER
        self._unreachable = False
        del self._dataplane.exchanges[self.ask.turn]
        self._world.counts[f"turn {end.how}"] += 1
        self._ended(end)
