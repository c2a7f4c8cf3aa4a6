"""In which words does the ledger tell the scheduler what happened?

`wire` makes messages of them; whoever has the scheduler in its own process may give it what it understands at once.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from luftpause.dataplane.leases import AnswerTold, LeaseEnded
from luftpause.dataplane.turns import Ask, ReturnReason, Usage

F_co = TypeVar("F_co", covariant=True)


class Words(Protocol[F_co]):
    """Each method makes one fact. Times are seconds on the ledger's clock."""

    def requested(self, ask: Ask, *, attempt: int, run: str, arrived: float, now: float, without: Sequence[str], sent_to: str = "") -> F_co:
        """
        `run` as stated or, once known, as the scheduler resolved it; `without`: replicas that gave it back.

        `sent_to`: it went there unasked.
        """
        ...

    def abandoned(self, turn: str, attempt: int) -> F_co: ...

    def returned(self, turn: str, attempt: int, replica: str, reason: ReturnReason) -> F_co: ...

    def started(self, turn: str, attempt: int) -> F_co: ...

    def first_token(self, turn: str) -> F_co: ...

    def tool_calls_seen(self, turn: str, ids: Sequence[str]) -> F_co: ...

    def response_seen(self, turn: str, response: str) -> F_co: ...

    def finished(
        self,
        turn: str,
        attempt: int,
        finish_reason: str,
        usage: Usage | None,
        *,
        paused: bool,
        tool_call_ids: Sequence[str],
        tools: Sequence[str],
    ) -> F_co: ...

    def failed(self, turn: str, attempt: int, reason: str) -> F_co: ...

    def answer_told(self, turn: str, attempt: int, told: AnswerTold) -> F_co: ...

    def lease_ended(self, ended: LeaseEnded) -> F_co: ...

    def run_ended(self, run: str, principal: str, ended: float, now: float) -> F_co: ...

    def locate(self, query: str, response: str, principal: str) -> F_co: ...

    def suspected(self, replica: str, reason: str) -> F_co: ...

    def unusable(self, replica: str, reason: str) -> F_co: ...
