"""Which nouns does a run consist of?"""

from enum import Enum

from msgspec import Struct

from luftpause.runtime.core.events import AskedCall, Created
from luftpause.runtime.ports import BudgetKind, Json, RunState


class CallPhase(Enum):
    WAITING = "waiting"  # not made yet
    ASKED = "asked"  # for a person to decide
    STARTED = "started"  # it may have happened
    ENDED = "ended"


class Call(Struct, frozen=True):
    """A tool call of the present round."""

    asked: AskedCall
    phase: CallPhase = CallPhase.WAITING
    repeatable: bool = False
    result: str = ""
    approval: str = ""  # the name of the question, once it was asked
    asked_at: float = 0.0
    allowed: bool = False

    @property
    def must_ask(self) -> bool:
        return self.asked.approval and not self.allowed


class Verdict(Struct, frozen=True):
    """What a person said to the question `approval`."""

    approval: str
    tool: str
    allowed: bool


class Round(Struct, frozen=True):
    """An answer with tool calls whose results are not all there yet."""

    content: str
    calls: tuple[Call, ...]


class Run(Struct, frozen=True):
    """A run as its events tell it. `messages` holds complete rounds only; an ended run keeps none."""

    created: Created
    state: RunState = RunState.RUNNING
    messages: tuple[Json, ...] = ()
    round: Round | None = None
    conclusion: str | None = None  # the last answer, until `Finished` is there too
    text: str = ""  # answer or error, once it has ended
    seconds: float = 0.0  # once it has ended
    ended_at: float | None = None
    turns: int = 0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    recoveries: int = 0  # turns in a row whose calls were recovered from text
    empty_answers: int = 0  # in a row
    resumes: int = 0
    turn_seconds: float = 0.0
    tool_seconds: float = 0.0
    truncated: bool = False  # the last answer ended at its length limit
    verdicts: tuple[Verdict, ...] = ()
    questions: int = 0  # approvals that were ever asked for
    budget_seconds: float = 0.0  # of its own budget, when they were last written down
    exceeded: BudgetKind | None = None
    exceeded_used: float = 0.0

    @property
    def handle(self) -> str:
        return self.created.handle

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls that wait for a person."""
        calls = self.round.calls if self.round else ()
        return tuple(call for call in calls if call.phase is CallPhase.ASKED)

    @property
    def tools_left(self) -> bool:
        """May the next turn have tools? Counting turns too keeps a run at `max_tool_calls` + 1 turns even when an answer was empty."""
        return max(self.tool_calls, self.turns) < self.created.max_tool_calls
