"""How are the core's effects carried out for one run?"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.logs import Log
from luftpause.runtime.core.choose import allowed
from luftpause.runtime.core.effects import AskModel, StartCall
from luftpause.runtime.core.events import CallEnded, Event, Shortened
from luftpause.runtime.core.history import functions, shortened
from luftpause.runtime.core.interpret import interpret
from luftpause.runtime.core.retries import spread_of, wait_seconds
from luftpause.runtime.core.text import shorten, whole
from luftpause.runtime.cpu_budget import CpuBudget
from luftpause.runtime.entries import Effects, Entry
from luftpause.runtime.ports import Json, ModelAnswer, ModelClient, ModelTurn, RunState, Toolbox, ToolResult, ToolSpec, TurnError
from luftpause.runtime.recorder import ending
from luftpause.runtime.traces import Traces

Record = Callable[[Entry, Event], Awaitable[Effects]]
Sleep = Callable[[float], Awaitable[None]]

INTERPRET_SECONDS: Final = 0.5  # of processor time for one answer; usual ones take less than a millisecond
COMPACT_CHARS: Final = 1_000  # of a tool result older than the last round
NOTE_CHARS = 200  # the toolbox cuts results itself; its own note must not be cut again

log = Log("runtime")


class Loop:
    """`record` journals an event; what it returns is to be done next, and is on disk already."""

    def __init__(
        self, config: RuntimeConfig, model: ModelClient, tools: Toolbox, record: Record, clock: Clock, sleep: Sleep,
        traces: Traces | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._traces = traces
        self._model = model
        self._tools = tools
        self._record = record
        self._clock = clock
        self._sleep = sleep

    async def drive(self, entry: Entry, effects: Effects) -> None:
        """Until the run has ended. Cancelling it stops the turn or the tool calls that are under way."""
        while effects or entry.run.round is not None:
            first = effects[0] if effects else None
            if isinstance(first, AskModel):
                effects = await self._next(entry, with_tools=first.with_tools)
            elif len(effects) == 1 and isinstance(first, StartCall) and not entry.run.waiting:
                effects = await self._call(entry, first)
            else:
                effects = await self._round(entry, effects)

    async def _next(self, entry: Entry, *, with_tools: bool) -> Effects:
        """A turn, and what follows. Where its quota is about to end the run says less from then on."""
        event, compact = await self._turn(entry, with_tools=with_tools)
        effects = await self._record(entry, event)
        if compact and not entry.run.state.ended and shortened(entry.run, COMPACT_CHARS) != entry.run.messages:
            await self._record(entry, Shortened(COMPACT_CHARS))
            log.info("older tool results were shortened, as a quota is about to end", run=entry.handle, chars_max=COMPACT_CHARS)
        return effects

    async def _turn(self, entry: Entry, *, with_tools: bool) -> tuple[Event, bool]:
        """The event of its answer, and whether that came with a hint to compact; that of the run's failure when it gave none."""
        offered = allowed(self._tools.tools(), entry.run.created.tools) if with_tools else {}
        asked_at = self._clock()
        answer = await self._answer(entry, offered)
        if isinstance(answer, str):
            return ending(entry.run, RunState.FAILED, answer), False
        away = allowed(self._tools.away(), entry.run.created.tools) if with_tools else {}
        found = interpret(entry.run, answer, offered, CpuBudget(INTERPRET_SECONDS), away)
        for note in found.notes:
            log.warning(note, run=entry.handle)
        return replace(found.event, seconds=self._since(asked_at)), answer.compact

    async def _answer(self, entry: Entry, offered: dict[str, ToolSpec]) -> ModelAnswer | str:
        """What the model said, or why it can't be asked any more."""
        created, failures, tries = entry.run.created, 0, 0
        turn = ModelTurn(
            run=entry.handle,
            model=created.model,
            messages=entry.run.messages,
            tools=functions(offered.values()),
            service_class=created.service_class,
            caller=created.caller,
            max_tokens=created.max_tokens,
            traceparent=created.traceparent,
            parent=created.parent or created.spawned_by,
        )
        while True:
            try:
                return await (self._model.ask(turn) if self._traces is None else self._traces.chat(self._model, created, turn))
            except TurnError as error:
                failures, tries = failures + (not error.limited), tries + 1
                wait = wait_seconds(
                    limited=error.limited,
                    retry_after_s=error.retry_after_s,
                    failures=failures,
                    retries_max=self._config.turn_retries_max,
                    spread=spread_of(f"{entry.handle}/{entry.run.turns}", tries),
                )
                if wait is None:
                    return self._hopeless(entry, error, failures)
                why = "rate-limited" if error.limited else f"turn failed ({error.message})"
                entry.note = f"{why}; next try in {wait:.3g} s"
                log.warning("turn will be retried", run=entry.handle, why=error.message, wait_seconds=wait, limited=error.limited)
                await self._sleep(wait)
                entry.note = ""

    def _hopeless(self, entry: Entry, error: TurnError, failures: int) -> str:
        tries = f" after {failures} tries" if failures > 1 else ""
        message = f"turn {entry.run.turns + 1} got no answer{tries}: {whole(error.message)}"
        if error.retry_after_s is None:
            return message
        return (
            f"{message}. Check that the dataplane at {self._config.dataplane} and a replica that serves {entry.run.created.model!r} "
            "are up, then spawn it again"
        )

    async def _round(self, entry: Entry, effects: Effects) -> Effects:
        """Calls at the same time, and those that decisions bring, until something else is to be done: the next turn, or nothing."""
        async with asyncio.TaskGroup() as group:
            working = {group.create_task(self._call(entry, effect)) for effect in effects if isinstance(effect, StartCall)}
            hearing = group.create_task(entry.decided.get())
            rest: Effects = ()
            while not rest and not entry.run.state.ended:
                await asyncio.wait({*working, hearing}, return_when=asyncio.FIRST_COMPLETED)
                follows = [effect for task in working if task.done() for effect in task.result()]
                working = {task for task in working if not task.done()}
                if hearing.done():
                    follows.extend(hearing.result())
                    hearing = group.create_task(entry.decided.get())
                working |= {group.create_task(self._call(entry, effect)) for effect in follows if isinstance(effect, StartCall)}
                rest = tuple(effect for effect in follows if isinstance(effect, AskModel))
            hearing.cancel()
        return rest

    async def _call(self, entry: Entry, call: StartCall) -> Effects:
        arguments: Json = json.loads(call.arguments)
        called_at = self._clock()
        try:
            if self._traces is None:
                result = await self._tools.call(call.name, arguments, entry.run.created.traceparent)
            else:
                result = await self._traces.execute_tool(self._tools, entry.run.created, call, arguments)
        except Exception as error:  # noqa: BLE001  (a tool never ends a run)
            log.error("the toolbox has a fault", run=entry.handle, tool=call.name, error=repr(error))  # noqa: TRY400  (no exception())
            result = ToolResult(f"Error: {error}" if str(error) else f"Error: {type(error).__name__}", failed=True)
        return await self._record(entry, CallEnded(call.id, self._readable(result), failed=result.failed, seconds=self._since(called_at)))

    def _since(self, began: float) -> float:
        return round(max(0.0, self._clock() - began), 3)

    def _readable(self, result: ToolResult) -> str:
        """Never empty, never longer than `tool_result_chars_max` and a note."""
        text = whole(result.text)
        if not text.strip():
            return "Error: the tool failed without saying why" if result.failed else "(the tool returned nothing)"
        chars_max = self._config.tool_result_chars_max
        return text if len(text) <= chars_max + NOTE_CHARS else shorten(text, chars_max)
