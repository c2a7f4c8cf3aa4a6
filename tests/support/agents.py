"""Which model and tools does a runtime under test talk to, and what did they see?"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from luftpause.runtime.ports import Decision, Json, ModelAnswer, ModelCall, ModelTurn, ServerState, ToolResult, ToolSpec, TurnError

Say = ModelAnswer | TurnError | Callable[[ModelTurn], Awaitable[ModelAnswer]]


def text(content: str) -> ModelAnswer:
    return ModelAnswer(content, (), "stop", prompt_tokens=10, completion_tokens=2, cached_tokens=4)


def calls(*names_and_arguments: tuple[str, Any], content: str = "", ids: Sequence[str] | None = None) -> ModelAnswer:
    made = tuple(
        ModelCall(id=ids[index] if ids else f"call_{index}", name=name, arguments=arguments)
        for index, (name, arguments) in enumerate(names_and_arguments)
    )
    return ModelAnswer(content, made, "tool_calls", prompt_tokens=10, completion_tokens=2, cached_tokens=4)


class ScriptedModel:
    """Answers each run's turns from a script; the last line goes on for ever. `script` may be a function of the turn."""

    def __init__(self, *script: Say, served: Sequence[str] = ("m",)) -> None:
        self.script = script
        self.served = tuple(served)
        self.classifying: tuple[str, ...] = ()
        self.questions: list[tuple[str, str, Sequence[str] | None, str]] = []
        self.turns: list[ModelTurn] = []
        self.ended: list[str] = []
        self.asked = 0
        self._place: dict[str, int] = {}

    async def ask(self, turn: ModelTurn) -> ModelAnswer:
        self.turns.append(turn)
        place = self._place.get(turn.run, 0)
        self._place[turn.run] = place + 1
        say = self.script[min(place, len(self.script) - 1)]
        if isinstance(say, TurnError):
            raise say
        return say if isinstance(say, ModelAnswer) else await say(turn)

    async def end_run(self, run: str) -> None:
        self.ended.append(run)

    async def classifiers(self) -> tuple[str, ...]:
        return self.classifying

    async def decide(self, model: str, text: str, labels: Sequence[str] | None, caller: str) -> Decision:
        self.questions.append((model, text, labels, caller))
        chosen = list(labels or ("spam", "ham"))
        return Decision(chosen[0], {chosen[0]: 0.75, chosen[1]: 0.25}, tuple(chosen[2:]), model)

    async def models(self) -> tuple[str, ...]:
        self.asked += 1
        await asyncio.sleep(0)
        return self.served


def spec(
    name: str, schema: Json | None = None, *, read_only: bool = False, idempotent: bool = False, destructive: bool = False
) -> ToolSpec:
    given = schema if schema is not None else {"type": "object", "properties": {"q": {"type": "string"}}}
    return ToolSpec(name, "server", name, f"The tool {name}.", given, read_only, idempotent, destructive)


class CountingTools:
    """Tools by name; `work` answers a call (default: says what it got). Counts every call that reached it."""

    def __init__(self, *specs: ToolSpec, work: Callable[[str, Json], Awaitable[ToolResult]] | None = None) -> None:
        self.specs = {each.name: each for each in specs or (spec("lookup"), spec("add"))}
        self.made: list[tuple[str, Json]] = []
        self.connected = True
        self._work = work

    def tools(self) -> Mapping[str, ToolSpec]:
        return self.specs

    def away(self) -> Mapping[str, ToolSpec]:
        return {}

    def servers(self) -> tuple[ServerState, ...]:
        return (ServerState("server", self.connected, tools=len(self.specs)),)

    def on_change(self, tell: Callable[[], None]) -> None:
        del tell

    async def ready(self, seconds_max: float) -> None:
        del seconds_max

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> ToolResult:
        del traceparent
        self.made.append((name, arguments))
        if self._work is not None:
            return await self._work(name, arguments)
        return ToolResult(f"{name} says {arguments.get('q', '')}")


async def never(turn: ModelTurn) -> ModelAnswer:
    """A turn that is held for ever."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError(turn)
