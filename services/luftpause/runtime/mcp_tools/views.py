"""What does a client see of runs and tools: JSON, and text beside it?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

from msgspec.structs import replace

from luftpause.runtime.ports import Json, RunState, RunView, ServerState, ToolSpec

TASK_CHARS: Final = 200
DOING_CHARS: Final = 120
DOINGS_MAX: Final = 5
LISTED_MAX: Final = 500


def run_json(run: RunView) -> Json:
    """As `schemas` describes it; what is not known is left out."""
    optional: Json = {"answer": run.answer, "error": run.error, "doing": run.doing or None, "parent": run.parent}
    return {
        "handle": run.handle,
        "state": run.state.value,
        "task": cut(run.task, TASK_CHARS),
        "model": run.model,
        "serviceClass": run.service_class.value,
        **{key: value for key, value in optional.items() if value is not None},
        "toolCalls": run.tool_calls,
        "failedToolCalls": run.failed_tool_calls,
        "turns": run.turns,
        "promptTokens": run.prompt_tokens,
        "completionTokens": run.completion_tokens,
        "cachedTokens": run.cached_tokens,
        "seconds": round(run.seconds, 3),
        "children": list(run.children),
    }


def runs_json(runs: Sequence[RunView]) -> Json:
    return {"runs": [run_json(run) for run in runs], "done": sum(run.state.ended for run in runs), "total": len(runs)}


def listed_json(runs: Sequence[RunView]) -> Json:
    """The newest LISTED_MAX without their answers, which `await` gives; `done` and `total` count all."""
    listed = [replace(run, answer=None, error=cut(run.error, TASK_CHARS) if run.error else None) for run in runs[-LISTED_MAX:]]
    return {**runs_json(listed), "done": sum(run.state.ended for run in runs), "total": len(runs)}


def run_text(run: RunView) -> str:
    """A line about the run, then its answer or error."""
    line = f"{run.handle}: {run.state.value}{_figures(run)}"
    match run.state:
        case RunState.COMPLETED:
            return f"{line}\n{run.answer or '(an empty answer)'}"
        case RunState.FAILED | RunState.CANCELLED:
            return f"{line}\n{run.error}" if run.error else line
        case RunState.RUNNING | RunState.AWAITING_APPROVAL:
            return f"{line}; {run.doing}" if run.doing else line
    assert_never(run.state)


def spawned_text(run: RunView) -> str:
    return f"{run.handle} runs with {run.model}. Call await with this handle to get its answer."


def awaited_text(runs: Sequence[RunView]) -> str:
    done = sum(run.state.ended for run in runs)
    left = [run.handle for run in runs if not run.state.ended]
    hint = [f"Still running; call await again with: {', '.join(left)}"] if left else []
    return "\n\n".join([f"{done} of {len(runs)} done.", *map(run_text, runs), *hint])


def listed_text(runs: Sequence[RunView]) -> str:
    if not runs:
        return "No runs."
    lines = [f"{run.handle}: {run.state.value}{_figures(run)}: {cut(run.task, TASK_CHARS)}" for run in runs[-LISTED_MAX:]]
    left_out = f" The newest {LISTED_MAX} are listed." if len(runs) > LISTED_MAX else ""
    return "\n".join([f"{_count(len(runs), 'run')}.{left_out} For an answer call await with its handle.", *lines])


def tools_json(tools: Mapping[str, ToolSpec], servers: Iterable[ServerState]) -> Json:
    return {
        "tools": [
            {
                "name": tool.name,
                "server": tool.server,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "readOnly": tool.read_only,
                "destructive": tool.destructive,
            }
            for tool in tools.values()
        ],
        "servers": [
            {
                "name": server.name,
                "connected": server.connected,
                "tools": server.tools,
                **({"error": server.error} if server.error else {}),
            }
            for server in servers
        ],
    }


def tools_text(tools: Mapping[str, ToolSpec], servers: Sequence[ServerState]) -> str:
    lines = [f"- {tool.name} ({tool.server}): {cut(tool.description, TASK_CHARS) or 'no description'}" for tool in tools.values()]
    away = [f"{server.name} is not connected, its tools are missing: {server.error}" for server in servers if not server.connected]
    head = f"{len(lines)} tool{'' if len(lines) == 1 else 's'} for sub-agents."
    none = [] if servers else ["No tool servers are configured (runtime.servers)."]
    return "\n".join([head, *lines, *away, *none])


def progress_text(runs: Sequence[RunView]) -> str:
    """`7 of 16 done: 6 held or generating, 3 tool lookup`; of one run just what it does."""
    done = sum(run.state.ended for run in runs)
    doing: dict[str, int] = {}
    for run in runs:
        if not run.state.ended:
            what = cut(run.doing or run.state.value, DOING_CHARS)
            doing[what] = doing.get(what, 0) + 1
    most = sorted(doing.items(), key=lambda item: -item[1])[:DOINGS_MAX]
    rest = ", ".join(what if len(runs) == 1 else f"{count} {what}" for what, count in most)
    return f"{done} of {len(runs)} done" + (f": {rest}" if rest else "")


def _figures(run: RunView) -> str:
    failed = f" ({run.failed_tool_calls} failed)" if run.failed_tool_calls else ""
    return f", {_count(run.turns, 'turn')}, {_count(run.tool_calls, 'tool call')}{failed}, {run.seconds:.1f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + "…"
