"""What do agents with their own loop ask of a small real model, so that it calls tools by itself and their prompts grow?

A model of 135 million parameters makes no calls by itself: turns that are to call have a bias on what a call begins with. The tool's one
argument has two possible values, so that a call is whole after some 30 tokens; what the model would say after it is cut off.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import httpx
from msgspec import Struct

from luftpause.cli.load_turn import Turn, TurnFailedError, ask
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import WORDS

Json = dict[str, Any]
MODEL: Final = "smollm2"
CLASSES: Final = ("interactive", "batch")
TURN_SECONDS_MAX: Final = 300.0
TOOLS: Final[list[Json]] = [{
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a question up.",
        "parameters": {"type": "object", "properties": {"shelf": {"enum": ["north", "south"]}}, "required": ["shelf"]},
    },
}]  # fmt: skip
FOUND: Final = "Item 12, in the third list."
CALL_BEGINS: Final = "<tool_call>"
CALL_BIAS: Final = 5.0


class Parameters(Struct, frozen=True):
    """
    `context`: tokens, shared out among the slots. `tool_calls`: of a run, one a turn; the turn after them is its last. The warm-up is long
    enough for every agent to have had some turns.
    """

    slots: int = 4
    context: int = 4_096
    threads: int = 1
    interactive: int = 2
    batch: int = 8
    tool_seconds: float = 2.0
    tool_calls: tuple[int, int] = (2, 3)
    note_words: tuple[int, int] = (80, 120)
    call_tokens: int = 32
    answer_tokens: int = 16
    warm_up_seconds: float = 40.0
    window_seconds: float = 70.0
    repeats: int = 1


class Answered(Struct, frozen=True):
    """A turn that ended at this second; `before`: tokens of the run's last prompt, 0 if there was none."""

    turn: Turn
    at: float
    before: int


class Run(Struct):
    """An agent's run. `ended` is 0 until it has; it is `complete` if it made all its calls."""

    turn_class: str
    began: float
    ended: float = 0.0
    complete: bool = False
    turns: list[Answered] = []


class Agents:
    """A closed loop. The runs of an agent have the same tasks whichever way they go."""

    def __init__(self, parameters: Parameters, base_url: str, repeat: int) -> None:
        self._parameters = parameters
        self._base_url = base_url
        self._repeat = repeat
        self._runs: list[Run] = []
        self._began = 0.0

    async def play(self, seconds: float) -> list[Run]:
        """All runs, those that have not ended as well. Raises LuftpauseError (`turn_failed`)."""
        # llama.cpp closes a connection after a stream although it has promised to keep it: no connection is used twice.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._began = time.monotonic()
        async with httpx.AsyncClient(base_url=self._base_url + "/", limits=limits, timeout=TURN_SECONDS_MAX, trust_env=False) as client:
            loops = [
                self._agent(client, turn_class, number) for turn_class in CLASSES for number in range(getattr(self._parameters, turn_class))
            ]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*loops)
        return self._runs

    async def _agent(self, client: httpx.AsyncClient, turn_class: str, agent: int) -> None:
        for number in range(1_000_000):
            made = Run(turn_class, self._now())
            self._runs.append(made)
            name = f"{self._repeat} {turn_class} {agent} {number}"
            await self._one(client, made, name, {"x-luftpause-class": turn_class, "x-luftpause-caller": f"{turn_class}-{agent}"})
            made.ended = self._now()

    async def _one(self, client: httpx.AsyncClient, made: Run, name: str, headers: Mapping[str, str]) -> None:
        chance = Random(name)
        messages, before, run = conversation(chance, self._parameters), 0, ""
        for left in range(chance.randint(*self._parameters.tool_calls), -1, -1):
            turn = await self._ask(client, messages, headers, calls=left > 0)
            made.turns.append(Answered(turn, self._now(), before))
            before, run = turn.prompt_tokens, turn.run or run
            calls = whole_calls(turn)
            made.complete = not left
            if not left or not calls:
                break
            messages.append({"role": "assistant", "content": turn.text or None, "tool_calls": calls})
            await asyncio.sleep(self._parameters.tool_seconds)
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": FOUND} for call in calls]
        if run:
            await client.delete(f"runs/{run}")

    async def _ask(self, client: httpx.AsyncClient, messages: list[Json], headers: Mapping[str, str], *, calls: bool) -> Turn:
        body: Json = {
            "model": MODEL, "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
            "max_tokens": self._parameters.answer_tokens, "tools": TOOLS,
        }  # fmt: skip
        if calls:
            body |= {"max_tokens": self._parameters.call_tokens, "logit_bias": [[CALL_BEGINS, CALL_BIAS]]}
        try:
            return await ask(client, body, headers)
        except TurnFailedError as error:
            raise LuftpauseError(f"a turn failed: {error}", code="turn_failed") from error

    def _now(self) -> float:
        return time.monotonic() - self._began


def whole_calls(turn: Turn) -> list[Json]:
    """Those with whole arguments: llama.cpp refuses a next turn with a call that was cut."""
    return [call for _, call in sorted(turn.calls.items()) if _is_whole(call)]


def _is_whole(call: Json) -> bool:
    try:
        return isinstance(json.loads(call["function"]["arguments"]), dict)
    except ValueError:
        return False


def conversation(chance: Random, parameters: Parameters) -> list[Json]:
    """How a run begins: with a task that no other run has."""
    notes = " ".join(chance.choice(WORDS) for _ in range(chance.randint(*parameters.note_words)))
    return [{"role": "user", "content": f"Notes: {notes}. How old is the {chance.choice(WORDS)}?"}]
