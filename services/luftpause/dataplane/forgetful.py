"""What does a dataplane remember whose scheduler can't go without it going too?

Nothing: nobody will ever ask. Turns in flight are in its ledger.
"""

from collections.abc import Sequence

from luftpause.dataplane.memory import Memory
from luftpause.dataplane.turns import Ask


class NoMemory(Memory):
    """Stays empty."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__(seconds=seconds, runs_max=0)

    def placed(
        self, now: float, ask: Ask, *, attempt: int, run: str, replica: str, turn_seq: int, fence: int = 0, model: str = ""
    ) -> None:  # fmt: skip
        pass

    def first_token(self, turn: str) -> None:
        pass

    def tool_calls_seen(self, now: float, turn: str, ids: Sequence[str]) -> None:
        pass

    def response_seen(self, now: float, turn: str, response: str) -> None:
        pass

    def finished(self, now: float, turn: str, *, paused: bool, tool_call_ids: Sequence[str] = ()) -> None:
        pass

    def withdrawn(self, now: float, turn: str, *, held_again: bool = True) -> None:
        pass
