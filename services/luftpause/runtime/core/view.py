"""What does a client see of a run?"""

from luftpause.runtime.core.model import CallPhase, Run
from luftpause.runtime.ports import RunState, RunView


def view(run: Run, *, seconds: float, children: tuple[str, ...] = (), note: str = "") -> RunView:
    """`seconds` so far, for a run that has not ended; `note`: what the shell is waiting for."""
    completed = run.state is RunState.COMPLETED
    return RunView(
        handle=run.handle,
        state=run.state,
        task=run.created.task,
        model=run.created.model,
        service_class=run.created.service_class,
        answer=run.text if completed else None,
        error=run.text if run.state.ended and not completed else None,
        tool_calls=run.tool_calls,
        failed_tool_calls=run.failed_tool_calls,
        turns=run.turns,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cached_tokens=run.cached_tokens,
        seconds=run.seconds if run.state.ended else seconds,
        parent=run.created.parent,
        children=children,
        doing="" if run.state.ended else note or doing(run),
    )


def doing(run: Run) -> str:
    """For progress messages: "held or generating", "tool lookup", "tools lookup, fetch"."""
    if run.round is None:
        return "held or generating"
    names = [call.asked.name for call in run.round.calls if call.phase is not CallPhase.ENDED]
    return f"tool{'s' if len(names) > 1 else ''} {', '.join(names)}"
