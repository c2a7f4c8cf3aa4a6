"""Which event is a fact of a dataplane, and which order is a decision of the core?"""

import math
from collections.abc import Callable, Iterable
from typing import Final, assert_never

from msgspec import Struct

from luftpause.kit.quota_bounds import EXCERPT_CHARS_MAX, readable
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.decisions import BranchFollowed, EndRun, Held, Lease, Located, Outcome, Place, Refuse
from luftpause.scheduler.core.events import (
    DataplaneAlive,
    Event,
    FirstToken,
    Kind,
    ReplicaSuspected,
    ReplicaUnusable,
    ResponseSeen,
    ResponseSought,
    ReturnReason,
    RunEnded,
    ToolCallSeen,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    TurnStarted,
    Usage,
)
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, ResponseMemory, RunMemory, ToolCallMemory, TurnMemory
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold, Told


class Announced(Struct, frozen=True, gc=False):
    """A replica as dataplanes are told of it. `state`: unknown, healthy, unhealthy. `url` without slash and `/v1` at its end."""

    name: str
    url: str
    models: tuple[str, ...]
    kind: Kind
    state: str
    api_key_env: str = ""
    apis: tuple[str, ...] = ()
    asks_usage: bool = False  # usage is asked of it where clients did not
    tells_limits: bool = False  # what its answers say of limits is to be told
    holds_limits: bool = False  # its refusals by quota are hidden, and the turn is held again
    passes_unasked: bool = False  # single passes may go there without asking, where no other one can take them


class Replicas(Struct, frozen=True, gc=False):
    """All replicas; sent after Welcome and at each change."""

    replicas: tuple[Announced, ...]


# From where on a dataplane's numbers are not believed: counting on must never reach what the wire can't carry.
TURN_SEQ_MAX: Final = 2**62
TOKENS_MAX: Final = 10**9
TOOLS_MAX: Final = 16  # names of tools that are read of one answer

Order = Place | Held | Refuse | EndRun | BranchFollowed | Located | Replicas


def event(fact: pb.Fact, *, dataplane: str, now: float) -> Event | Told | None:
    """The event of one fact, its ages turned into times on the clock of `now`. None: this version does not know the fact.

    Hello, HelloPart and HelloEnd are no events by themselves and give None too.
    """
    translate = _EVENTS.get(fact.WhichOneof("fact") or "")
    return translate(fact, dataplane, now) if translate else None


def runs(part: pb.HelloPart, now: float) -> Iterable[RunMemory]:
    """The runs of a part of a dataplane's memory."""
    return (_run(record, now) for record in part.runs)


def turns(part: pb.HelloPart, now: float) -> Iterable[TurnMemory]:
    """The turns in flight of a part of a dataplane's memory."""
    return (_turn(record, now) for record in part.turns)


def order(decided: Order) -> pb.Order:  # noqa: PLR0911 (one per order)
    """What a dataplane is told."""
    match decided:
        case Place():
            return pb.Order(placed=_placed(decided))
        case Held(turn=turn, attempt=attempt, run=run, reason=reason, waits_for=waits_for):
            return pb.Order(held=pb.Held(turn=turn, attempt=attempt, run=run, reason=reason.value, waits_for=waits_for))
        case Refuse():
            return pb.Order(refused=_refused(decided))
        case EndRun(run=run, principal=principal):
            return pb.Order(run_forgotten=pb.RunForgotten(run=run, principal=principal))
        case BranchFollowed(run=run, principal=principal, model=model, ids=ids):
            return pb.Order(branch_followed=pb.BranchFollowed(run=run, principal=principal, model=model, tool_call_ids=ids))
        case Located(query=query, replica=replica, run=run):
            return pb.Order(located=pb.Located(query=query, replica=replica, run=run))
        case Replicas(replicas=replicas):
            return pb.Order(replicas=pb.Replicas(replicas=[_replica(replica) for replica in replicas]))
        case _:
            assert_never(decided)


# ---- down -------------------------------------------------------------------------------------------------------


def _placed(place: Place) -> pb.Placed:
    placed = pb.Placed(
        turn=place.turn,
        attempt=place.attempt,
        run=place.run,
        replica=place.replica,
        turn_seq=place.turn_seq,
        hold_reason=place.hold_reason.value if place.hold_reason else "",
        held_ms=round(place.held_seconds * 1000),
        priority=place.priority if isinstance(place.priority, int) else None,
    )
    if isinstance(lease := place.lease, Lease):
        placed.fence, placed.model = lease.fence, lease.model
        if lease.level:
            placed.level, placed.answer_share, placed.answer_least = lease.level, lease.answer_share, lease.answer_least
    return placed


def _refused(refuse: Refuse) -> pb.Refused:
    return pb.Refused(
        turn=refuse.turn,
        attempt=refuse.attempt,
        run=refuse.run,
        status=refuse.status,
        code=refuse.code,
        message=refuse.message,
        retry_after_ms=math.ceil(refuse.retry_after_seconds * 1000),
    )


def _replica(replica: Announced) -> pb.Replica:
    return pb.Replica(
        name=replica.name,
        url=replica.url,
        models=replica.models,
        kind=_KIND_NUMBERS[replica.kind],
        state=replica.state,
        api_key_env=replica.api_key_env,
        apis=replica.apis,
        asks_usage=replica.asks_usage,
        tells_limits=replica.tells_limits,
        holds_limits=replica.holds_limits,
        passes_unasked=replica.passes_unasked,
    )


# ---- up ---------------------------------------------------------------------------------------------------------
# Enums are open on the wire: a number that only a newer version knows becomes the value that does least harm.

_KINDS: Final[dict[int, Kind]] = {
    pb.KIND_GENERATIVE: Kind.GENERATIVE,
    pb.KIND_CLASSIFIER: Kind.CLASSIFIER,
    pb.KIND_EMBEDDING: Kind.EMBEDDING,
}
_KIND_NUMBERS: Final = {
    Kind.GENERATIVE: pb.KIND_GENERATIVE,
    Kind.CLASSIFIER: pb.KIND_CLASSIFIER,
    Kind.EMBEDDING: pb.KIND_EMBEDDING,
}
_REASONS: Final[dict[int, ReturnReason]] = {
    pb.TurnReturned.REASON_UNREACHABLE: ReturnReason.UNREACHABLE,
    pb.TurnReturned.REASON_BUSY: ReturnReason.BUSY,
    pb.TurnReturned.REASON_LIMITED: ReturnReason.LIMITED,
}


_OUTCOMES: Final[dict[int, Outcome]] = {
    pb.LeaseTold.OUTCOME_UNUSED: Outcome.UNUSED,
    pb.LeaseTold.OUTCOME_ANSWERED: Outcome.ANSWERED,
    pb.LeaseTold.OUTCOME_LIMITED: Outcome.LIMITED,
    pb.LeaseTold.OUTCOME_FAILED: Outcome.FAILED,
}


def _kind(number: int) -> Kind:
    return _KINDS.get(number, Kind.GENERATIVE)


def _class(number: int) -> TurnClass:
    return TurnClass.BATCH if number == pb.TURN_CLASS_BATCH else TurnClass.INTERACTIVE


def _since(age_ms: int, now: float) -> float:
    return now - age_ms / 1000


def _run(record: pb.RunRecord, now: float) -> RunMemory:
    return RunMemory(
        run=record.run,
        turn_class=_class(record.turn_class),
        caller=record.caller,
        turn_seq=min(record.turn_seq, TURN_SEQ_MAX),
        seen=_since(record.age_ms, now),
        placed=_since(record.placed_age_ms, now),
        parent=record.parent,
        lanes=tuple(_lane(lane, now) for lane in record.lanes),
        tool_calls=tuple(ToolCallMemory(call.id, call.head_digest, _since(call.age_ms, now)) for call in record.tool_calls),
        responses=tuple(ResponseMemory(answer.id, answer.replica, _since(answer.age_ms, now)) for answer in record.responses),
        principal=record.principal,
        fell=tuple(sorted(record.fell.items())),
    )


def _lane(record: pb.LaneRecord, now: float) -> LaneMemory:
    return LaneMemory(
        model=record.model,
        home=record.home,
        turn_seq=min(record.turn_seq, TURN_SEQ_MAX),
        paused=tuple(PausedBranch(tuple(branch.tool_call_ids), _since(branch.age_ms, now)) for branch in record.paused),
        ended=_since(record.idle_age_ms, now),
    )


def _turn(record: pb.TurnRecord, now: float) -> TurnMemory:
    return TurnMemory(
        turn=record.turn,
        attempt=record.attempt,
        run=record.run,
        model=record.model,
        replica=record.replica,
        turn_seq=min(record.turn_seq, TURN_SEQ_MAX),
        turn_class=_class(record.turn_class),
        caller=record.caller,
        placed=_since(record.age_ms, now),
        kind=_kind(record.kind),
        first_token=record.first_token,
        principal=record.principal,
        head_digest=record.head_digest,
        fence=record.fence,
    )


def _alive(fact: pb.Fact, dataplane: str, now: float) -> Event:
    alive = fact.alive
    listed = tuple(alive.turns) if alive.lists_turns else None
    return DataplaneAlive(now, dataplane, listed, tuple(alive.delivering))


def _requested(fact: pb.Fact, dataplane: str, now: float) -> Event:
    asked = fact.turn_requested
    return TurnRequested(
        now=now,
        dataplane=dataplane,
        turn=asked.turn,
        attempt=asked.attempt,
        fresh_run=asked.fresh_run,
        model=asked.model,
        turn_class=_class(asked.turn_class),
        caller=asked.caller,
        run=asked.run,
        parent=asked.parent,
        kind=_kind(asked.kind),
        api=asked.api or "chat",
        tool_call_ids=tuple(asked.tool_call_ids),
        head_digest=asked.head_digest,
        previous_response=asked.previous_response,
        body_hash=asked.body_hash,
        arrived=_since(asked.age_ms, now),
        without=tuple(asked.without),
        principal=asked.principal,
        body_bytes=asked.body_bytes,
        priority=asked.priority if asked.HasField("priority") else -1,
        answer_tokens_max=min(asked.answer_tokens_max, TOKENS_MAX),
        traceparent=asked.traceparent,
        sent_to=asked.sent_to,
    )


def _abandoned(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return TurnAbandoned(now, dataplane, fact.turn_abandoned.turn, fact.turn_abandoned.attempt)


def _returned(fact: pb.Fact, dataplane: str, now: float) -> Event:
    back = fact.turn_returned
    reason = _REASONS.get(back.reason, ReturnReason.UNREACHABLE)
    return TurnReturned(now, dataplane, back.turn, back.attempt, back.replica, reason)


def _started(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return TurnStarted(now, dataplane, fact.turn_started.turn, fact.turn_started.attempt)


def _first_token(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return FirstToken(now, dataplane, fact.first_token.turn)


def _tool_call(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return ToolCallSeen(now, dataplane, fact.tool_call_seen.turn, tuple(fact.tool_call_seen.ids))


def _response(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return ResponseSeen(now, dataplane, fact.response_seen.turn, fact.response_seen.response)


def _finished(fact: pb.Fact, dataplane: str, now: float) -> Event:
    end = fact.turn_finished
    return TurnFinished(
        now=now,
        dataplane=dataplane,
        turn=end.turn,
        attempt=end.attempt,
        finish_reason=end.finish_reason,
        usage=_usage(end.usage) if end.HasField("usage") else None,
        paused=end.paused,
        tool_call_ids=tuple(end.tool_call_ids),
        tools=tuple(end.tools[:TOOLS_MAX]),
    )


def _usage(usage: pb.Usage) -> Usage:
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens if usage.cached_known else None)


def _failed(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return TurnFailed(now, dataplane, fact.turn_failed.turn, fact.turn_failed.attempt, fact.turn_failed.reason)


def _run_ended(fact: pb.Fact, _dataplane: str, now: float) -> Event:
    return RunEnded(now, fact.run_ended.run, fact.run_ended.principal, _since(fact.run_ended.age_ms, now))


def _sought(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return ResponseSought(now, dataplane, fact.locate.query, fact.locate.response, fact.locate.principal)


def _suspected(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return ReplicaSuspected(now, dataplane, fact.replica_suspected.replica)


def _unusable(fact: pb.Fact, dataplane: str, now: float) -> Event:
    return ReplicaUnusable(now, dataplane, fact.replica_unusable.replica, fact.replica_unusable.reason)


def _answer_told(fact: pb.Fact, _dataplane: str, _now: float) -> Told:
    return _answer(fact.answer_told)


def _answer(told: pb.AnswerTold) -> AnswerTold:
    return AnswerTold(told.turn, told.attempt, told.status, readable(told.headers), told.excerpt[:EXCERPT_CHARS_MAX])


def _lease_told(fact: pb.Fact, _dataplane: str, _now: float) -> Told:
    told = fact.lease_told
    return LeaseTold(
        turn=told.turn,
        attempt=told.attempt,
        replica=told.replica,
        fence=told.fence,
        outcome=_OUTCOMES.get(told.outcome, Outcome.FAILED),
        prompt_tokens=told.prompt_tokens if told.HasField("prompt_tokens") else None,
        answer_tokens=told.answer_tokens if told.HasField("answer_tokens") else None,
        answer=_answer(told.answer) if told.HasField("answer") else None,
    )


_EVENTS: Final[dict[str, Callable[[pb.Fact, str, float], Event | Told]]] = {
    "alive": _alive,
    "turn_requested": _requested,
    "turn_abandoned": _abandoned,
    "turn_returned": _returned,
    "turn_started": _started,
    "first_token": _first_token,
    "tool_call_seen": _tool_call,
    "response_seen": _response,
    "turn_finished": _finished,
    "turn_failed": _failed,
    "run_ended": _run_ended,
    "locate": _sought,
    "replica_suspected": _suspected,
    "replica_unusable": _unusable,
    "answer_told": _answer_told,
    "lease_told": _lease_told,
}
