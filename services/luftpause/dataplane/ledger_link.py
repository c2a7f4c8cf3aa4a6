"""What do all ways to the scheduler have in common: a ledger that speaks for the turns?"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from luftpause.dataplane.ledger import Ledger, Line
from luftpause.dataplane.turns import Ask, Found, Replica, ReturnReason, Usage, Waiter

F = TypeVar("F")


class LedgerLink(Generic[F]):
    """A `turns.Scheduler` but for how facts get there."""

    def __init__(self, ledger: Ledger[F]) -> None:
        self.ledger = ledger

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return self.ledger.replicas

    @property
    def hosted(self) -> bool:
        return self.ledger.hosted

    @property
    def contacted(self) -> bool:
        return self.ledger.contacted

    @property
    def connected(self) -> bool:
        return self.ledger.line is Line.OPEN

    @abstractmethod
    def delivering(self, replica: str) -> None: ...

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        self.ledger.ask(ask, waiter)

    def abandon(self, turn: str) -> None:
        self.ledger.abandon(turn)

    def give_back(self, turn: str, reason: ReturnReason) -> None:
        self.ledger.give_back(turn, reason)

    def started(self, turn: str) -> None:
        self.ledger.started(turn)

    def first_token(self, turn: str) -> None:
        self.ledger.first_token(turn)

    def tool_calls_seen(self, turn: str, ids: Sequence[str]) -> None:
        self.ledger.tool_calls_seen(turn, ids)

    def response_seen(self, turn: str, response: str) -> None:
        self.ledger.response_seen(turn, response)

    def finished(
        self,
        turn: str,
        finish_reason: str,
        usage: Usage | None,
        *,
        paused: bool,
        tool_call_ids: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        self.ledger.finished(turn, finish_reason, usage, paused=paused, tool_call_ids=tool_call_ids, tools=tools)

    def answer_told(self, turn: str, status: int, headers: Mapping[str, str], excerpt: str) -> None:
        self.ledger.answer_told(turn, status, headers, excerpt)

    def failed(self, turn: str, reason: str, usage: Usage | None = None) -> None:
        self.ledger.failed(turn, reason, usage)

    def end_run(self, run: str, principal: str = "") -> None:
        self.ledger.end_run(run, principal)

    def run_of_call(self, id_: str, principal: str) -> str:
        return self.ledger.run_of_call(id_, principal)

    def locate(self, response: str, principal: str, found: Found) -> str:
        return self.ledger.locate(response, principal, found)

    def unseek(self, query: str) -> None:
        self.ledger.unseek(query)

    def suspect(self, replica: str, reason: str) -> None:
        self.ledger.suspect(replica, reason)
