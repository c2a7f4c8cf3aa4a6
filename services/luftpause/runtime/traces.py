"""What does a trace show of a run: itself, its turns, its tool calls?

A run's span has an id that follows from its handle, so that what is done after a restart belongs to it too. It is told when the run ends.
"""

import hashlib
from typing import Final

from msgspec.structs import replace

from luftpause.kit import trace_context
from luftpause.kit.trace_context import TraceContext
from luftpause.kit.tracing import Record, Tracer, Value
from luftpause.runtime.core.effects import StartCall
from luftpause.runtime.core.events import Created
from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import Json, ModelAnswer, ModelClient, ModelTurn, RunState, Toolbox, ToolResult

AGENT: Final = "luftpause sub-agent"


class Traces:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def chat(self, model: ModelClient, created: Created, turn: ModelTurn) -> ModelAnswer:
        """One try of a turn."""
        named: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "luftpause",
            "gen_ai.request.model": turn.model,
            "luftpause.run_id": turn.run,
        }
        if turn.max_tokens:
            named["gen_ai.request.max_tokens"] = turn.max_tokens
        span = self._tracer.begin(f"chat {turn.model}", parent=context_of(created).header(), kind="client", attributes=named)
        try:
            answer = await model.ask(replace(turn, traceparent=span.header))
        except BaseException as error:
            span.set("error.type", type(error).__name__)
            span.end(str(error) or type(error).__name__)
            raise
        span.set("gen_ai.usage.input_tokens", answer.prompt_tokens)
        span.set("gen_ai.usage.output_tokens", answer.completion_tokens)
        if answer.finish_reason:
            span.set("gen_ai.response.finish_reasons", [answer.finish_reason])
        span.end()
        return answer

    async def execute_tool(self, tools: Toolbox, created: Created, call: StartCall, arguments: Json) -> ToolResult:
        named = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "luftpause.run_id": created.handle,
        }
        span = self._tracer.begin(f"execute_tool {call.name}", parent=context_of(created).header(), attributes=named)
        try:
            result = await tools.call(call.name, arguments, span.header)
        except BaseException as error:
            span.set("error.type", type(error).__name__)
            span.end(type(error).__name__)
            raise
        if result.failed:
            span.set("error.type", "tool_error")
        span.end("the tool failed" if result.failed else "")
        return result

    def ended(self, run: Run) -> None:
        """The run's own span; its times are those that the journal has."""
        created, context = run.created, context_of(run.created)
        if not context.sampled:
            return
        above = trace_context.read(created.traceparent)
        named: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "luftpause",
            "gen_ai.agent.name": AGENT,
            "gen_ai.agent.id": created.handle,
            "gen_ai.request.model": created.model,
            "gen_ai.usage.input_tokens": run.prompt_tokens,
            "gen_ai.usage.output_tokens": run.completion_tokens,
            "luftpause.run_id": created.handle,
            "luftpause.class": created.service_class.value,
            "luftpause.turns": run.turns,
            "luftpause.tool_calls": run.tool_calls,
            "luftpause.state": run.state.value,
        }
        error = "" if run.state is RunState.COMPLETED else run.state.value
        if error:
            named["error.type"] = error
        start_ns = int(created.at * 1e9)
        self._tracer.put(
            Record(
                f"invoke_agent {AGENT}", "internal", context.trace, context.span, above.span if above is not None else "", start_ns,
                max(start_ns, int((run.ended_at or created.at + run.seconds) * 1e9)), named, error,
            )
        )  # fmt: skip


def context_of(created: Created) -> TraceContext:
    """What is done for a run is done within this."""
    above = trace_context.read(created.traceparent)
    if above is not None and not above.sampled:
        return above
    named = hashlib.sha256(created.handle.encode()).hexdigest()
    return TraceContext(above.trace if above is not None else named[:32], named[32:48])
