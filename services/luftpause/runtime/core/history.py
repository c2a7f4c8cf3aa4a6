"""What does the model see of its run?

The one form: `content` is always there and always a string; an assistant message has text, calls or both; `arguments` is the JSON text of
an object; every call is followed by the tool message with its id, in the order of the calls.
"""

from collections.abc import Iterable

from luftpause.runtime.core.events import AskedCall, Created
from luftpause.runtime.core.model import Round, Run
from luftpause.runtime.core.text import CUT_NOTE, shorten
from luftpause.runtime.ports import Json, ToolSpec

DEFAULT_SYSTEM = (
    "You are a sub-agent. Work on the task with the tools that you are given, one step after another. "
    "When you know enough, answer in plain text: the answer is all that your caller sees."
)
NO_ANSWER = "(no answer)"
NOTE_CHARS_MAX = 100
ASK_AGAIN = "Your answer was empty. Answer the task now, in plain text."


def opening(created: Created) -> tuple[Json, ...]:
    task: Json = {"role": "user", "content": created.task}
    return ({"role": "system", "content": created.system}, task) if created.system else (task,)


def empty_round() -> tuple[Json, ...]:
    """Stands for an answer that had neither text nor calls. Roles alternate, because some chat templates insist on it."""
    return ({"role": "assistant", "content": NO_ANSWER}, {"role": "user", "content": ASK_AGAIN})


def complete_round(done: Round) -> tuple[Json, ...]:
    """An answer with tool calls and all their results."""
    calls = [_call(each.asked) for each in done.calls]
    results: list[Json] = [{"role": "tool", "tool_call_id": each.asked.id, "content": each.result} for each in done.calls]
    return ({"role": "assistant", "content": done.content, "tool_calls": calls}, *results)


def shortened(run: Run, chars_max: int) -> tuple[Json, ...]:
    """The history with tool results older than the last round cut. Results that were cut so before stay as they are."""
    messages = run.messages
    rounds = [index for index, message in enumerate(messages) if message.get("tool_calls")]
    older = len(messages) if run.round is not None or not rounds else rounds[-1]
    return tuple(_shorter(message, chars_max) if index < older else message for index, message in enumerate(messages))


def _shorter(message: Json, chars_max: int) -> Json:
    text: str = message["content"]
    if message["role"] != "tool" or (CUT_NOTE.search(text) and len(text) <= chars_max + NOTE_CHARS_MAX):
        return message
    return {**message, "content": shorten(text, chars_max)}


def used_ids(run: Run) -> set[str]:
    """The ids of all tool calls in the history."""
    return {call["id"] for message in run.messages for call in message.get("tool_calls", ())}


def functions(tools: Iterable[ToolSpec]) -> tuple[Json, ...]:
    """Tools as OpenAI functions."""
    return tuple({"type": "function", "function": _function(tool)} for tool in tools)


def _function(tool: ToolSpec) -> Json:
    parameters = tool.input_schema if tool.parameters is None else tool.parameters
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _call(asked: AskedCall) -> Json:
    return {"id": asked.id, "type": "function", "function": {"name": asked.name, "arguments": asked.arguments}}
