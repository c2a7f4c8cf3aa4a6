"""What does a run do that follows a plan, round by round, whatever the model answers?"""

from msgspec import Struct

TokenCount = int


class Round(Struct, frozen=True):
    """
    One turn and the pause after it; lengths in tokens, as in the columns of TraceLab.

    `prefix_len`: what the context held before; of the first round: what all runs begin with. `input_len`: what is new. `output_len`: of the
    answer. `output_max`: what the client allows; None: the length of the answer.
    """

    prefix_len: TokenCount
    input_len: TokenCount
    output_len: TokenCount
    tool_wait_after_ms: float = 0.0
    output_max: TokenCount | None = None

    @property
    def prompt_len(self) -> TokenCount:
        return self.prefix_len + self.input_len


class Plan(Struct, frozen=True):
    """A run. `arrival_time`: milliseconds after the begin of the load. None: as the load says."""

    session_id: str
    rounds: tuple[Round, ...]
    arrival_time: float = 0.0
    turn_class: str | None = None
    caller: str | None = None
