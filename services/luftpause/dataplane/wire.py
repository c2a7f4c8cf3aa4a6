"""How do the dataplane's own values look in messages to the scheduler?"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from luftpause.dataplane.leases import AnswerTold, LeaseEnd, LeaseEnded
from luftpause.dataplane.turns import Ask, Kind, ReturnReason, TurnClass, Usage
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

KINDS: Final = {
    Kind.GENERATIVE: pb.KIND_GENERATIVE,
    Kind.CLASSIFIER: pb.KIND_CLASSIFIER,
    Kind.EMBEDDING: pb.KIND_EMBEDDING,
}
KINDS_READ: Final = {number: kind for kind, number in KINDS.items()}
REASONS: Final = {
    ReturnReason.UNREACHABLE: pb.TurnReturned.REASON_UNREACHABLE,
    ReturnReason.BUSY: pb.TurnReturned.REASON_BUSY,
    ReturnReason.LIMITED: pb.TurnReturned.REASON_LIMITED,
}

LEASE_ENDS: Final = {
    LeaseEnd.UNUSED: pb.LeaseTold.OUTCOME_UNUSED,
    LeaseEnd.ANSWERED: pb.LeaseTold.OUTCOME_ANSWERED,
    LeaseEnd.LIMITED: pb.LeaseTold.OUTCOME_LIMITED,
    LeaseEnd.FAILED: pb.LeaseTold.OUTCOME_FAILED,
}

IDS_MAX: Final = 256  # the newest of a request or an answer
ID_CHARS_MAX: Final = 512  # longer ids are not told: no engine makes them
NAME_CHARS_MAX: Final = 1_024  # longer ones are cut; no replica serves such a model
TOOLS_MAX: Final = 16  # names of tools that one answer called
TOOL_CHARS_MAX: Final = 128  # longer names are cut; no API allows them
_ASK_CHARS_USUAL: Final = 4_096


def bounded(ask: Ask) -> Ask:
    """The ask without what no message could carry: lone surrogates (O10), endless names and ids.

    One such ask would end the session, and again after each reconnect.
    """
    text = "".join((
        ask.run, ask.parent, ask.caller, ask.model, ask.api, ask.previous_response, ask.traceparent, ask.principal, *ask.tool_call_ids,
    ))  # fmt: skip
    if text.isascii() and len(text) <= _ASK_CHARS_USUAL and len(ask.tool_call_ids) <= IDS_MAX:
        return ask
    return replace(
        ask,
        run=name(ask.run),
        parent=name(ask.parent),
        caller=name(ask.caller),
        model=name(ask.model),
        api=name(ask.api),
        previous_response=next(iter(ids((ask.previous_response,))), ""),
        traceparent=name(ask.traceparent),
        principal=name(ask.principal),
        tool_call_ids=ids(ask.tool_call_ids),
    )


def name(text: str) -> str:
    """Cut, and with a question mark for what is no character."""
    return text[:NAME_CHARS_MAX].encode("utf-8", "replace").decode()


def ids(values: Sequence[str]) -> tuple[str, ...]:
    """Those that name something; an empty id names nothing (O11)."""
    return tuple([
        each if each.isascii() else each.encode("utf-8", "replace").decode() for each in values[:IDS_MAX] if 0 < len(each) <= ID_CHARS_MAX
    ])


def tools(names: Sequence[str]) -> tuple[str, ...]:
    """Of tools, each bounded; few engines make a call without one."""
    return tuple([name(each[:TOOL_CHARS_MAX]) for each in names[:TOOLS_MAX]])


def turn_class(value: TurnClass) -> pb.TurnClass:
    return pb.TURN_CLASS_BATCH if value is TurnClass.BATCH else pb.TURN_CLASS_INTERACTIVE


def age_ms(now: float, moment: float) -> int:
    return max(0, round((now - moment) * 1000))


def requested(
    ask: Ask, *, attempt: int, run: str, arrived: float, now: float, without: Sequence[str], sent_to: str = ""
) -> pb.Fact:  # fmt: skip
    return pb.Fact(
        turn_requested=pb.TurnRequested(
            turn=ask.turn,
            attempt=attempt,
            fresh_run=ask.fresh_run,
            run=run,
            parent=ask.parent,
            turn_class=turn_class(ask.turn_class),
            caller=ask.caller,
            model=ask.model,
            kind=KINDS[ask.kind],
            api=ask.api,
            tool_call_ids=ask.tool_call_ids,
            head_digest=ask.head_digest,
            previous_response=ask.previous_response,
            body_hash=ask.body_hash,
            age_ms=age_ms(now, arrived),
            without=without,
            traceparent=ask.traceparent,
            principal=ask.principal,
            body_bytes=ask.body_bytes,
            priority=ask.priority if ask.priority >= 0 else None,
            answer_tokens_max=ask.answer_tokens_max,
            sent_to=sent_to,
        )
    )


def abandoned(turn: str, attempt: int) -> pb.Fact:
    return pb.Fact(turn_abandoned=pb.TurnAbandoned(turn=turn, attempt=attempt))


def returned(turn: str, attempt: int, replica: str, reason: ReturnReason) -> pb.Fact:
    return pb.Fact(turn_returned=pb.TurnReturned(turn=turn, attempt=attempt, replica=replica, reason=REASONS[reason]))


def started(turn: str, attempt: int) -> pb.Fact:
    return pb.Fact(turn_started=pb.TurnStarted(turn=turn, attempt=attempt))


def first_token(turn: str) -> pb.Fact:
    return pb.Fact(first_token=pb.FirstToken(turn=turn))


def tool_calls_seen(turn: str, ids: Sequence[str]) -> pb.Fact:
    return pb.Fact(tool_call_seen=pb.ToolCallSeen(turn=turn, ids=ids))


def response_seen(turn: str, response: str) -> pb.Fact:
    return pb.Fact(response_seen=pb.ResponseSeen(turn=turn, response=response))


def finished(
    turn: str,
    attempt: int,
    finish_reason: str,
    usage: Usage | None,
    *,
    paused: bool,
    tool_call_ids: Sequence[str],
    tools: Sequence[str],
) -> pb.Fact:
    return pb.Fact(
        turn_finished=pb.TurnFinished(
            turn=turn,
            attempt=attempt,
            finish_reason=name(finish_reason),
            usage=_usage(usage),
            paused=paused,
            tool_call_ids=tool_call_ids,
            tools=tools,
        )
    )


def _usage(usage: Usage | None) -> pb.Usage | None:
    if usage is None:
        return None
    return pb.Usage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached or 0,
        cached_known=usage.cached is not None,
    )


def answer_told(turn: str, attempt: int, told: AnswerTold) -> pb.Fact:
    return pb.Fact(answer_told=_told(turn, attempt, told))


def _told(turn: str, attempt: int, told: AnswerTold) -> pb.AnswerTold:
    return pb.AnswerTold(turn=turn, attempt=attempt, status=told.status, headers=told.headers, excerpt=told.excerpt)


def lease_ended(ended: LeaseEnded) -> pb.Fact:
    return pb.Fact(
        lease_told=pb.LeaseTold(
            turn=ended.turn,
            attempt=ended.attempt,
            replica=ended.replica,
            fence=ended.fence,
            outcome=LEASE_ENDS[ended.end],
            prompt_tokens=ended.usage.prompt if ended.usage is not None else None,
            answer_tokens=ended.usage.completion if ended.usage is not None else None,
            answer=_told(ended.turn, ended.attempt, ended.told) if ended.told is not None else None,
        )
    )


def failed(turn: str, attempt: int, reason: str) -> pb.Fact:
    return pb.Fact(turn_failed=pb.TurnFailed(turn=turn, attempt=attempt, reason=name(reason)))


def run_ended(run: str, principal: str, ended: float, now: float) -> pb.Fact:
    return pb.Fact(run_ended=pb.RunEnded(run=name(run), principal=name(principal), age_ms=age_ms(now, ended)))


def locate(query: str, response: str, principal: str) -> pb.Fact:
    return pb.Fact(locate=pb.Locate(query=query, response=response, principal=name(principal)))


def suspected(replica: str, reason: str) -> pb.Fact:
    return pb.Fact(replica_suspected=pb.ReplicaSuspected(replica=replica, reason=name(reason)))


def unusable(replica: str, reason: str) -> pb.Fact:
    return pb.Fact(replica_unusable=pb.ReplicaUnusable(replica=replica, reason=name(reason)))


def alive(delivering: Iterable[str], turns: Iterable[str] | None) -> pb.Fact:
    """`turns`: all in flight, where they are listed."""
    return pb.Fact(alive=pb.Alive(lists_turns=turns is not None, turns=turns or (), delivering=delivering))
