"""What does an event make of a run, and what is to be done next?"""

from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec.structs import replace

from luftpause.runtime.core import history
from luftpause.runtime.core.budgets import told
from luftpause.runtime.core.effects import AskApproval, AskModel, Effect, Finish, RunStep, StartCall
from luftpause.runtime.core.events import (
    Answered,
    ApprovalAnswered,
    ApprovalAsked,
    BudgetUsed,
    CallEnded,
    CallStarted,
    Created,
    Event,
    Finished,
    Resumed,
    Shortened,
)
from luftpause.runtime.core.model import Call, CallPhase, Round, Run, Verdict
from luftpause.runtime.ports import RunState

BUDGET_SPENT = "Error: tool-call budget spent"
DECLINED = "Error: the user declined this tool call"
FILTERED = "content_filter"  # OpenAI's finish_reason
WITHHELD = "a filter of the engine or its provider withheld the answer (finish_reason content_filter); put the task in other words"
INTERRUPTED = (
    "Error: this tool call was interrupted by a restart and may have happened. It was not repeated. "
    "Check its effect before you make it again."
)


def advance(run: Run | None, event: Event) -> RunStep:
    """Absorb one event. Pure. `run` is None for `Created` only; an ended run takes no more events but `BudgetUsed`.

    Raises ValueError where an event can't belong to the run: the journal is damaged, or the shell has a fault.
    """
    if run is None:
        if not isinstance(event, Created):
            raise ValueError(f"a run begins with created, not with {type(event).__name__}")
        return _settle(Run(created=event, messages=history.opening(event)))
    if isinstance(event, BudgetUsed):
        return _budget_used(run, event)
    return RunStep(run) if run.state.ended else _absorb(run, event)


def fold(events: Iterable[Event]) -> RunStep:
    """The run that these events tell, and the effects of the last one. Raises ValueError as `advance`, also if there are none."""
    step: RunStep | None = None
    for event in events:
        step = advance(step.run if step else None, event)
    if step is None:
        raise ValueError("a run without events")
    return step


def _absorb(run: Run, event: Event) -> RunStep:  # noqa: C901, PLR0911  (one line for each event)
    match event:
        case Created():
            raise ValueError(f"{run.handle} was created twice")
        case Answered():
            return _answered(run, event)
        case ApprovalAsked():
            return _approval_asked(run, event)
        case ApprovalAnswered():
            return _approval_answered(run, event)
        case CallStarted():
            return _call_started(run, event)
        case CallEnded():
            return _call_ended(run, event)
        case Shortened():
            return RunStep(replace(run, messages=history.shortened(run, event.chars_max)))
        case BudgetUsed():
            return _budget_used(run, event)
        case Resumed():
            return _resumed(run)
        case Finished():
            return RunStep(_finished(run, event))
    assert_never(event)


def _settle(run: Run) -> RunStep:
    """Order what comes next: the end, the calls of the round that may be made now, or the next turn."""
    if run.conclusion is not None:
        return RunStep(run, (Finish(RunState.COMPLETED, run.conclusion),))
    if run.round is None:
        return RunStep(run, (AskModel(with_tools=run.tools_left),))
    if all(call.phase is CallPhase.ENDED for call in run.round.calls):
        messages = (*run.messages, *history.complete_round(run.round))
        return _settle(replace(run, messages=messages, round=None))
    open_calls = [call for call in run.round.calls if call.phase is not CallPhase.ENDED]
    ready = open_calls if run.created.parallel_tool_calls else open_calls[:1]
    return RunStep(run, _orders(run, [call for call in ready if call.phase is CallPhase.WAITING]))


def _orders(run: Run, calls: Iterable[Call]) -> tuple[Effect, ...]:
    orders: list[Effect] = []
    questions = run.questions
    for call in calls:
        if call.must_ask:
            questions += 1
            orders.append(AskApproval(call.asked.id, f"approval-{questions}"))
        else:
            orders.append(StartCall(call.asked.id, call.asked.name, call.asked.arguments, call.repeatable))
    return tuple(orders)


def _answered(run: Run, event: Answered) -> RunStep:
    if run.round is not None:
        raise ValueError(f"{run.handle} got an answer before its tool calls had ended")
    run = replace(
        run,
        turns=run.turns + 1,
        prompt_tokens=run.prompt_tokens + event.prompt_tokens,
        completion_tokens=run.completion_tokens + event.completion_tokens,
        cached_tokens=run.cached_tokens + event.cached_tokens,
        turn_seconds=run.turn_seconds + event.seconds,
        truncated=event.finish_reason == "length",
    )
    if event.calls:
        return _calls(run, event)
    if event.content.strip():
        return _settle(replace(run, conclusion=event.content))
    return _empty(run, event.finish_reason)


def _empty(run: Run, finish_reason: str) -> RunStep:
    """Ask once again; a second empty answer in a row, or one to the last turn that the run may have, completes it with an empty text.

    If a filter withheld it, the run fails.
    """
    if run.empty_answers or run.turns > run.created.max_tool_calls:
        if finish_reason == FILTERED:
            return RunStep(run, (Finish(RunState.FAILED, WITHHELD),))
        return _settle(replace(run, conclusion=""))
    return _settle(replace(run, empty_answers=1, messages=(*run.messages, *history.empty_round())))


def _calls(run: Run, event: Answered) -> RunStep:
    """Every call counts against the budget; what doesn't fit is answered in the model's history only."""
    fits = max(0, run.created.max_tool_calls - run.tool_calls)
    calls = tuple(
        Call(asked, CallPhase.ENDED, result=BUDGET_SPENT)
        if index >= fits
        else Call(asked, CallPhase.ENDED, result=asked.rejected)
        if asked.rejected
        else Call(asked)
        for index, asked in enumerate(event.calls)
    )
    rejected = sum(1 for asked in event.calls[:fits] if asked.rejected)
    return _settle(
        replace(
            run,
            round=Round(event.content, calls),
            tool_calls=run.tool_calls + min(fits, len(calls)),
            failed_tool_calls=run.failed_tool_calls + rejected,
            recoveries=run.recoveries + 1 if event.recovered else 0,
            empty_answers=0,
        )
    )


def _approval_asked(run: Run, event: ApprovalAsked) -> RunStep:
    def ask(call: Call) -> Call:
        if call.phase is not CallPhase.WAITING or not call.must_ask:
            raise ValueError(f"{run.handle}: nobody is to be asked about tool call {event.id}")
        return replace(call, phase=CallPhase.ASKED, approval=event.approval, asked_at=event.at)

    return RunStep(replace(_with_call(run, event.id, ask), questions=run.questions + 1))


def _approval_answered(run: Run, event: ApprovalAnswered) -> RunStep:
    """An allowed call is made now; one that was declined has ended."""
    asked = next((call for call in run.waiting if call.approval == event.approval), None)
    if asked is None:
        raise ValueError(f"{run.handle} doesn't wait for {event.approval}")

    def answer(call: Call) -> Call:
        if event.allowed:
            return replace(call, phase=CallPhase.WAITING, allowed=True)
        return replace(call, phase=CallPhase.ENDED, result=DECLINED)

    run = replace(
        _with_call(run, asked.asked.id, answer),
        failed_tool_calls=run.failed_tool_calls + (not event.allowed),
        verdicts=(*run.verdicts, Verdict(event.approval, asked.asked.name, event.allowed)),
    )
    return _settle(run)


def _budget_used(run: Run, event: BudgetUsed) -> RunStep:
    """Past a limit an unfinished run is cancelled; a finished one only takes note."""
    run = replace(run, budget_seconds=event.seconds)
    if run.exceeded is None:
        run = replace(run, exceeded=event.exceeded, exceeded_used=event.used)
    passed = told(run)
    if passed is None or run.state.ended:
        return RunStep(run)
    return RunStep(run, (Finish(RunState.CANCELLED, passed.message),))


def _call_started(run: Run, event: CallStarted) -> RunStep:
    def start(call: Call) -> Call:
        if call.phase is not CallPhase.WAITING or call.must_ask:
            raise ValueError(f"{run.handle}: tool call {event.id} was started twice")
        return replace(call, phase=CallPhase.STARTED, repeatable=event.repeatable)

    return RunStep(_with_call(run, event.id, start))


def _call_ended(run: Run, event: CallEnded) -> RunStep:
    def end(call: Call) -> Call:
        if call.phase is not CallPhase.STARTED:
            raise ValueError(f"{run.handle}: tool call {event.id} ended without having been started")
        return replace(call, phase=CallPhase.ENDED, result=event.text)

    run = _with_call(run, event.id, end)
    return _settle(replace(run, failed_tool_calls=run.failed_tool_calls + event.failed, tool_seconds=run.tool_seconds + event.seconds))


def _with_call(run: Run, call_id: str, change: Callable[[Call], Call]) -> Run:
    """`run` with one call of its round changed; raises ValueError when there is no such call."""
    calls = run.round.calls if run.round else ()
    if run.round is None or all(call.asked.id != call_id for call in calls):
        raise ValueError(f"{run.handle} has no tool call {call_id}")
    changed = tuple(change(call) if call.asked.id == call_id else call for call in calls)
    return replace(run, round=replace(run.round, calls=changed))


def _resumed(run: Run) -> RunStep:
    """Calls that may have happened are made again only if that does no harm; those with a result never are."""
    run = replace(run, resumes=run.resumes + 1)
    if run.round is None:
        return _settle(run)
    lost = sum(1 for call in run.round.calls if call.phase is CallPhase.STARTED and not call.repeatable)
    calls = tuple(_after_restart(call) for call in run.round.calls)
    return _settle(replace(run, round=replace(run.round, calls=calls), failed_tool_calls=run.failed_tool_calls + lost))


def _after_restart(call: Call) -> Call:
    if call.phase is not CallPhase.STARTED:
        return call
    if call.repeatable:
        return replace(call, phase=CallPhase.WAITING)
    return replace(call, phase=CallPhase.ENDED, result=INTERRUPTED)


def finished(run: Run, state: RunState, text: str, *, at: float, seconds: float) -> Finished:
    """The last event of `run`, with its counters."""
    return Finished(
        state=state,
        at=at,
        seconds=seconds,
        text=text,
        tool_calls=run.tool_calls,
        failed_tool_calls=run.failed_tool_calls,
        turns=run.turns,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cached_tokens=run.cached_tokens,
        turn_seconds=run.turn_seconds,
        tool_seconds=run.tool_seconds,
        truncated=run.truncated and state is RunState.COMPLETED,
        budget_seconds=run.budget_seconds,
        exceeded=run.exceeded,
        exceeded_used=run.exceeded_used,
    )


def _finished(run: Run, event: Finished) -> Run:
    """Counters come from the event: after compaction the events between are gone. The history goes, nobody needs it any more."""
    return Run(
        created=run.created,
        state=event.state,
        text=event.text,
        seconds=event.seconds,
        ended_at=event.at,
        tool_calls=event.tool_calls,
        failed_tool_calls=event.failed_tool_calls,
        turns=event.turns,
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        cached_tokens=event.cached_tokens,
        turn_seconds=event.turn_seconds,
        tool_seconds=event.tool_seconds,
        truncated=event.truncated,
        budget_seconds=event.budget_seconds,
        exceeded=event.exceeded,
        exceeded_used=event.exceeded_used,
        verdicts=run.verdicts,
        questions=run.questions,
    )
