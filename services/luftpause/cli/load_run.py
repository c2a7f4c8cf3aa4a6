"""What does one run of a load send, turn by turn?"""

import time
from random import Random
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from luftpause.cli.load_plan import Plan, Round
from luftpause.cli.load_report import Outcome, RoundRecord, RunRecord, totals
from luftpause.cli.load_turn import Json, Turn
from luftpause.kit import ids

SYSTEM: Final = "You are a careful research agent. Look facts up with the tool before you answer."
LOOKUP: Final[Json] = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a fact up.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
STEP: Final[Json] = {
    "type": "function",
    "function": {
        "name": "next_step",
        "description": "Do a step.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
ROLE_TOKENS: Final = 4  # about what a chat template puts around a message
STEP_TOKENS: Final = 45  # about what the tool takes in a prompt


class Who(Struct, frozen=True):
    """Whose run it is. `name` is unlike that of any other run; `header` and the body's `field` carry its id, unless they are empty."""

    name: str
    turn_class: str
    caller: str
    began_s: float  # since the begin of the load
    header: str = ""
    field: str = ""


class Shape(Struct, frozen=True):
    """What agents with their own loop do: they go on until the model calls no tool. `max_tokens` 0 leaves the length to the engine."""

    context_chars: tuple[int, int] = (2_000, 2_000)
    tool_seconds: float = 1.0
    tool_calls_max: int = 3
    max_tokens: int = 256
    result_chars: int = 15


class Script(Protocol):
    """What a run says; a new one for each run."""

    def body(self) -> Json:
        """The next turn's: messages, tools, limits."""
        ...

    def heard(self, turn: Turn) -> float | None:
        """Takes the answer in. Seconds of the tool call that follows; None: that was all."""
        ...


class Run:
    """A run in progress: what it has cost so far."""

    def __init__(self, who: Who, script: Script, prefix_len: int = 0) -> None:
        self.who = who
        self.script = script
        self.id = ids.new_run_id() if who.header or who.field else ""
        self.answered = ""  # the run id that luftpause gave, empty elsewhere
        self.rounds: list[RoundRecord] = []
        self._prefix_len = prefix_len
        self._clock = time.monotonic
        self._began = self._clock()

    def headers(self) -> dict[str, str]:
        headers = {"x-luftpause-class": self.who.turn_class, "x-luftpause-caller": self.who.caller}
        return {**headers, self.who.header: self.id} if self.who.header else headers

    def field(self) -> Json:
        """The run's id where the body has it."""
        value: Any = self.id
        for name in reversed(self.who.field.split(".") if self.who.field else ()):
            value = {name: value}
        return value if self.who.field else {}

    def heard(self, asked_s: float, turn: Turn) -> float | None:
        """As Script.heard; `asked_s`: when the turn was asked, since the begin of the run."""
        self.answered = turn.run or self.answered
        wait = self.script.heard(turn)
        self.rounds.append(
            RoundRecord(
                self.who.began_s + asked_s, self.seconds - asked_s, turn.first_token_s, turn.prompt_tokens, turn.cached_tokens,
                turn.completion_tokens, len(turn.calls), wait or 0.0,
            )
        )  # fmt: skip
        return wait

    @property
    def seconds(self) -> float:
        """Since its begin."""
        return self._clock() - self._began

    def record(self, outcome: Outcome, error: str | None = None) -> RunRecord:
        return RunRecord(
            turn_class=self.who.turn_class, outcome=outcome, seconds=self.seconds, **asdict(totals(self.rounds)), error=error,
            session_id=self.who.name, caller=self.who.caller, began_s=self.who.began_s, prefix_len=self._prefix_len,
            rounds=tuple(self.rounds),
        )  # fmt: skip


# ---- agents with their own loop -----------------------------------------------------------------------------------


class AgentScript:
    """Goes on while the model calls tools, as an agent does."""

    def __init__(self, name: str, shape: Shape, chance: Random) -> None:
        self._shape = shape
        self._calls = 0
        task = f"Task {name}: compare what the notes say and name the one that fits."
        self._messages: list[Json] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": task + notes(name, chance.randint(*shape.context_chars) - len(task))},
        ]

    def body(self) -> Json:
        """The tools stay in the prompt when they are spent: without them it would begin otherwise, and no cache would know it."""
        spent = self._calls >= self._shape.tool_calls_max
        body: Json = {"messages": self._messages, "tools": [LOOKUP], **({"tool_choice": "none"} if spent else {})}
        return {**body, "max_tokens": self._shape.max_tokens} if self._shape.max_tokens else body

    def heard(self, turn: Turn) -> float | None:
        self._calls += len(turn.calls)
        if not turn.calls:
            return None
        self._messages += [turn.message(), *results(turn, f"Found: item {self._calls}.".ljust(self._shape.result_chars, "."))]
        return self._shape.tool_seconds


# ---- runs that follow a plan --------------------------------------------------------------------------------------


class PlannedScript:
    """
    Sends prompts of the planned lengths, asks for answers of the planned lengths, and pauses as planned.

    Where another round follows, the model must call a tool (`tool_choice: required`); an engine that does not gets the result as a message.
    """

    def __init__(self, name: str, plan: Plan, characters_per_token: float) -> None:
        self._name = name
        self._plan = plan
        self._characters = characters_per_token
        self._done = 0
        self._messages: list[Json] = []
        self._open(plan.rounds[0], plan.rounds[0].prefix_len)

    def body(self) -> Json:
        now = self._plan.rounds[self._done]
        more = self._done + 1 < len(self._plan.rounds)
        return {
            "messages": self._messages,
            "tools": [STEP],
            "tool_choice": "required" if more else "none",
            "min_tokens": now.output_len,
            "max_tokens": now.output_max or now.output_len,
        }

    def heard(self, turn: Turn) -> float | None:
        before = self._plan.rounds[self._done]
        self._done += 1
        if self._done == len(self._plan.rounds):
            return None
        now = self._plan.rounds[self._done]
        has = (turn.prompt_tokens or before.prompt_len) + (turn.completion_tokens or before.output_len)
        if now.prompt_len < before.prompt_len:
            self._open(now, 0)
        else:
            text = self._text(f"{self._name}-{self._done}", now.prompt_len - has - 2 * ROLE_TOKENS)
            self._messages += [turn.message(), *(results(turn, text) if turn.calls else [{"role": "user", "content": text}])]
        return before.tool_wait_after_ms / 1000

    def _open(self, now: Round, shared: int) -> None:
        """The first messages; later those of a client that gave up what the context held. `shared`: tokens that all runs begin with."""
        self._messages = []
        left = now.prompt_len - STEP_TOKENS - 2 * ROLE_TOKENS
        if shared:
            text = self._text("shared", shared - STEP_TOKENS - ROLE_TOKENS)
            self._messages.append({"role": "system", "content": text})
            left -= ROLE_TOKENS + round(len(text) / self._characters)
        self._messages.append({"role": "user", "content": self._text(f"{self._name}-{self._done}", left)})

    def _text(self, name: str, tokens: int) -> str:
        head = f"Run {name}."
        characters = max(1, round(tokens * self._characters))
        return (head + notes(name, characters - len(head)))[:characters]


def results(turn: Turn, text: str) -> list[Json]:
    """One for each tool call: `text` for the first one."""
    found = [text, *["Done."] * (len(turn.calls) - 1)]
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": each}
        for call, each in zip((turn.calls[index] for index in sorted(turn.calls)), found, strict=True)
    ]


def notes(name: str, characters: int) -> str:
    """A text of this length that only runs with the same name share."""
    if characters <= 0:
        return ""
    line = len(f"\nNote {name}-0: item 0 was seen next to item 0.")
    text = "".join(f"\nNote {name}-{i}: item {i} was seen next to item {7 * i % 101}." for i in range(characters // line + 1))
    return text[:characters]
