"""What is known of a turn, and how does it end when its engine does not end it: its client left, nobody serves it, the dataplane stops?"""

from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.bodies import plain
from luftpause.dataplane.early import Early
from luftpause.dataplane.formats import Format
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.dataplane.turn_words import held_lines, name_lines, placed_lines
from luftpause.dataplane.turns import Placement

if TYPE_CHECKING:
    from luftpause.dataplane.attempt import Attempt
    from luftpause.dataplane.exchange import Client, Request
    from luftpause.dataplane.relay import Relay
    from luftpause.dataplane.turn_span import TurnSpan


class Stage(Enum):
    NEW = "new"
    HELD = "held"  # the scheduler has the word
    PLACED = "placed"  # a connection is being made
    SENT = "sent"  # an engine has it
    OVER = "over"


NEW, HELD, PLACED, SENT, OVER = Stage  # a name of the module costs a tenth of an attribute of an Enum


class TurnEnds:
    """The part of `turn.Turn` that needs no engine."""

    __slots__ = (
        "_attempt", "_body", "_conn", "_died", "_early", "_headers", "_held_at", "_hold_reason", "_kept", "_lacks_usage", "_no_place",
        "_placement", "_run", "_span", "_stage", "_target", "_unreachable", "api", "deadline", "hides_usage", "holds_limits", "id", "relay",
        "stores", "told_first_token", "version",
    )  # fmt: skip

    def __init__(self, relay: "Relay", conn: "Client", request: "Request", api: Format) -> None:
        self.relay = relay
        self._conn = conn
        self.api = api
        self.version = request.head.version
        self._body = plain(request.body)
        _, mark, query = request.head.target.partition(b"?")
        self._target = api.path.encode() + mark + query
        self._headers = b""
        self.id = ""
        self._run = ""
        self._stage = NEW
        self._attempt: Attempt | None = None
        self._placement: Placement | None = None
        self._unreachable = ""  # why the last place did not take it
        self._no_place = ""  # the code of that, if there is no other place
        self._died = False  # an engine went away before it answered; that is tried once more
        self._held_at = NEVER  # when the scheduler first said so
        self._hold_reason = ""  # the last one that it told
        self._early: Early | None = None
        self._lacks_usage = False  # of its answer, unless it is asked for
        self.hides_usage = False
        self.holds_limits = False  # a refusal by quota is no answer of its place
        self._kept: tuple[AnswerHead, bytes] | None = None  # the last refusal by quota that was hidden
        self.stores = False  # the answer can be asked for later
        self.told_first_token = False
        self._span: TurnSpan | None = None  # where turns are traced
        self.deadline = NEVER

    @abstractmethod
    def expire(self, now: float) -> None:
        """Nobody else took it in time."""

    # ---- what is known of it

    def ours(self) -> bytes:
        """The header lines that say what happened to the turn."""
        if self._placement is not None:
            return placed_lines(self.id, self._placement)
        return self.names() + held_lines(self._held_at, self._hold_reason)

    def names(self) -> bytes:
        """The header lines with the ids that are known."""
        return name_lines(self.id, self._run)

    def waits_for(self) -> bytes:
        """Why it is held; empty: it is not."""
        if self._stage is not HELD:
            return b""
        return self._hold_reason.encode() or b"no scheduler"

    # ---- ends that don't come from the engine

    def client_left(self) -> None:
        self._end_early("client_left")

    def stop_waiting(self, rejection: Rejection) -> None:
        """The dataplane stops: a turn that no engine has goes back to its client."""
        if self._stage is HELD:
            self._conn.keeps = False
            self.relay.scheduler.abandon(self.id)
            self.reject(rejection)

    def kill(self, rejection: Rejection) -> None:
        """The dataplane ends now."""
        attempt = self._attempt
        self._conn.keeps = False
        self._end_early("stopped")
        if attempt is not None and attempt.passed:
            attempt.break_off()
        else:
            self.reject(rejection)

    def _end_early(self, why: str) -> None:
        stage, attempt = self._stage, self._attempt
        if self._span is not None:
            self._span.failed(why)
        if stage is SENT and attempt is not None:
            attempt.tell_limits()
        self._over()
        if attempt is not None:
            attempt.abort()
        if stage is SENT:
            self.relay.scheduler.failed(self.id, why, attempt.usage if attempt is not None else None)
        elif stage is HELD or stage is PLACED:
            self.relay.scheduler.abandon(self.id)

    def _over(self) -> None:
        if self._stage is not NEW and self._stage is not OVER:
            self.relay.leave(self)
        self._stage = OVER
        if self._span is not None:
            self._span.end(self._run, self._placement)
            self._span = None
        self._attempt = None  # it knows the turn: without this the two would wait for the garbage collector
        self._unhurried()
        self._quiet()

    def _quiet(self) -> None:
        if self._early is not None:
            self._early.stop()

    def reject(self, rejection: Rejection) -> None:
        """Answer with an error. Nothing of an engine's answer has gone on."""
        early = self._early
        if self._span is not None:
            self._span.failed(rejection.code, rejection.status)
        self._over()
        if early is not None and early.begun:
            early.fail(self.api.error_event(rejection))
            return
        conn = self._conn
        more = conn.more + self.ours() if self._run else conn.more
        conn.answer(refusal(rejection, more=more, close=not conn.keeps))

    def _unhurried(self) -> None:
        if self.deadline != NEVER:
            self.deadline = NEVER
            self.relay.sweep.forget(self)

    # ---- Handler

    def pause(self) -> None:
        if self._attempt is not None and self._attempt.upstream is not None:
            self._attempt.upstream.pause()

    def resume(self) -> None:
        if self._attempt is not None and self._attempt.upstream is not None:
            self._attempt.upstream.resume()

    def last_sign(self) -> float:
        upstream = self._attempt.upstream if self._attempt is not None else None
        return upstream.last_read if upstream is not None else 0.0
