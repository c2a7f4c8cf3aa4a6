from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TurnClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_CLASS_UNSPECIFIED: _ClassVar[TurnClass]
    TURN_CLASS_INTERACTIVE: _ClassVar[TurnClass]
    TURN_CLASS_BATCH: _ClassVar[TurnClass]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_GENERATIVE: _ClassVar[Kind]
    KIND_CLASSIFIER: _ClassVar[Kind]
    KIND_EMBEDDING: _ClassVar[Kind]
TURN_CLASS_UNSPECIFIED: TurnClass
TURN_CLASS_INTERACTIVE: TurnClass
TURN_CLASS_BATCH: TurnClass
KIND_UNSPECIFIED: Kind
KIND_GENERATIVE: Kind
KIND_CLASSIFIER: Kind
KIND_EMBEDDING: Kind

class FactBatch(_message.Message):
    __slots__ = ("facts",)
    FACTS_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    def __init__(self, facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ...) -> None: ...

class OrderBatch(_message.Message):
    __slots__ = ("orders",)
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[Order]
    def __init__(self, orders: _Optional[_Iterable[_Union[Order, _Mapping]]] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("hello", "hello_part", "hello_end", "alive", "turn_requested", "turn_abandoned", "turn_returned", "turn_started", "first_token", "tool_call_seen", "response_seen", "turn_finished", "turn_failed", "run_ended", "replica_suspected", "replica_unusable", "locate", "answer_told", "lease_told")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_PART_FIELD_NUMBER: _ClassVar[int]
    HELLO_END_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    TURN_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    TURN_ABANDONED_FIELD_NUMBER: _ClassVar[int]
    TURN_RETURNED_FIELD_NUMBER: _ClassVar[int]
    TURN_STARTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_SEEN_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_SEEN_FIELD_NUMBER: _ClassVar[int]
    TURN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    TURN_FAILED_FIELD_NUMBER: _ClassVar[int]
    RUN_ENDED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_SUSPECTED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_UNUSABLE_FIELD_NUMBER: _ClassVar[int]
    LOCATE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOLD_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOLD_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    hello_part: HelloPart
    hello_end: HelloEnd
    alive: Alive
    turn_requested: TurnRequested
    turn_abandoned: TurnAbandoned
    turn_returned: TurnReturned
    turn_started: TurnStarted
    first_token: FirstToken
    tool_call_seen: ToolCallSeen
    response_seen: ResponseSeen
    turn_finished: TurnFinished
    turn_failed: TurnFailed
    run_ended: RunEnded
    replica_suspected: ReplicaSuspected
    replica_unusable: ReplicaUnusable
    locate: Locate
    answer_told: AnswerTold
    lease_told: LeaseTold
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., hello_part: _Optional[_Union[HelloPart, _Mapping]] = ..., hello_end: _Optional[_Union[HelloEnd, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., turn_requested: _Optional[_Union[TurnRequested, _Mapping]] = ..., turn_abandoned: _Optional[_Union[TurnAbandoned, _Mapping]] = ..., turn_returned: _Optional[_Union[TurnReturned, _Mapping]] = ..., turn_started: _Optional[_Union[TurnStarted, _Mapping]] = ..., first_token: _Optional[_Union[FirstToken, _Mapping]] = ..., tool_call_seen: _Optional[_Union[ToolCallSeen, _Mapping]] = ..., response_seen: _Optional[_Union[ResponseSeen, _Mapping]] = ..., turn_finished: _Optional[_Union[TurnFinished, _Mapping]] = ..., turn_failed: _Optional[_Union[TurnFailed, _Mapping]] = ..., run_ended: _Optional[_Union[RunEnded, _Mapping]] = ..., replica_suspected: _Optional[_Union[ReplicaSuspected, _Mapping]] = ..., replica_unusable: _Optional[_Union[ReplicaUnusable, _Mapping]] = ..., locate: _Optional[_Union[Locate, _Mapping]] = ..., answer_told: _Optional[_Union[AnswerTold, _Mapping]] = ..., lease_told: _Optional[_Union[LeaseTold, _Mapping]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("welcome", "alive", "held", "placed", "refused", "replicas", "run_forgotten", "located", "branch_followed")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RUN_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    LOCATED_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    alive: Alive
    held: Held
    placed: Placed
    refused: Refused
    replicas: Replicas
    run_forgotten: RunForgotten
    located: Located
    branch_followed: BranchFollowed
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., placed: _Optional[_Union[Placed, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., replicas: _Optional[_Union[Replicas, _Mapping]] = ..., run_forgotten: _Optional[_Union[RunForgotten, _Mapping]] = ..., located: _Optional[_Union[Located, _Mapping]] = ..., branch_followed: _Optional[_Union[BranchFollowed, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("dataplane", "boot", "protocol")
    DATAPLANE_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    dataplane: str
    boot: str
    protocol: Protocol
    def __init__(self, dataplane: _Optional[str] = ..., boot: _Optional[str] = ..., protocol: _Optional[_Union[Protocol, _Mapping]] = ...) -> None: ...

class Protocol(_message.Message):
    __slots__ = ("major", "minor")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    major: int
    minor: int
    def __init__(self, major: _Optional[int] = ..., minor: _Optional[int] = ...) -> None: ...

class HelloPart(_message.Message):
    __slots__ = ("runs", "turns")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunRecord]
    turns: _containers.RepeatedCompositeFieldContainer[TurnRecord]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunRecord, _Mapping]]] = ..., turns: _Optional[_Iterable[_Union[TurnRecord, _Mapping]]] = ...) -> None: ...

class HelloEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunRecord(_message.Message):
    __slots__ = ("run", "turn_class", "caller", "parent", "turn_seq", "lanes", "tool_calls", "responses", "age_ms", "principal", "fell", "placed_age_ms")
    class FellEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    TURN_CLASS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    TURN_SEQ_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FELL_FIELD_NUMBER: _ClassVar[int]
    PLACED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    run: str
    turn_class: TurnClass
    caller: str
    parent: str
    turn_seq: int
    lanes: _containers.RepeatedCompositeFieldContainer[LaneRecord]
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCallRecord]
    responses: _containers.RepeatedCompositeFieldContainer[ResponseRecord]
    age_ms: int
    principal: str
    fell: _containers.ScalarMap[str, str]
    placed_age_ms: int
    def __init__(self, run: _Optional[str] = ..., turn_class: _Optional[_Union[TurnClass, str]] = ..., caller: _Optional[str] = ..., parent: _Optional[str] = ..., turn_seq: _Optional[int] = ..., lanes: _Optional[_Iterable[_Union[LaneRecord, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCallRecord, _Mapping]]] = ..., responses: _Optional[_Iterable[_Union[ResponseRecord, _Mapping]]] = ..., age_ms: _Optional[int] = ..., principal: _Optional[str] = ..., fell: _Optional[_Mapping[str, str]] = ..., placed_age_ms: _Optional[int] = ...) -> None: ...

class LaneRecord(_message.Message):
    __slots__ = ("model", "home", "turn_seq", "paused", "idle_age_ms")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    TURN_SEQ_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    IDLE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    home: str
    turn_seq: int
    paused: _containers.RepeatedCompositeFieldContainer[PausedBranch]
    idle_age_ms: int
    def __init__(self, model: _Optional[str] = ..., home: _Optional[str] = ..., turn_seq: _Optional[int] = ..., paused: _Optional[_Iterable[_Union[PausedBranch, _Mapping]]] = ..., idle_age_ms: _Optional[int] = ...) -> None: ...

class PausedBranch(_message.Message):
    __slots__ = ("tool_call_ids", "age_ms")
    TOOL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    tool_call_ids: _containers.RepeatedScalarFieldContainer[str]
    age_ms: int
    def __init__(self, tool_call_ids: _Optional[_Iterable[str]] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ToolCallRecord(_message.Message):
    __slots__ = ("id", "head_digest", "age_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    head_digest: bytes
    age_ms: int
    def __init__(self, id: _Optional[str] = ..., head_digest: _Optional[bytes] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ResponseRecord(_message.Message):
    __slots__ = ("id", "replica", "age_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    replica: str
    age_ms: int
    def __init__(self, id: _Optional[str] = ..., replica: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class TurnRecord(_message.Message):
    __slots__ = ("turn", "attempt", "run", "model", "replica", "turn_seq", "kind", "turn_class", "caller", "age_ms", "first_token", "principal", "head_digest", "fence")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    TURN_SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TURN_CLASS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    run: str
    model: str
    replica: str
    turn_seq: int
    kind: Kind
    turn_class: TurnClass
    caller: str
    age_ms: int
    first_token: bool
    principal: str
    head_digest: bytes
    fence: int
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., run: _Optional[str] = ..., model: _Optional[str] = ..., replica: _Optional[str] = ..., turn_seq: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., turn_class: _Optional[_Union[TurnClass, str]] = ..., caller: _Optional[str] = ..., age_ms: _Optional[int] = ..., first_token: bool = ..., principal: _Optional[str] = ..., head_digest: _Optional[bytes] = ..., fence: _Optional[int] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("lists_turns", "turns", "delivering")
    LISTS_TURNS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    DELIVERING_FIELD_NUMBER: _ClassVar[int]
    lists_turns: bool
    turns: _containers.RepeatedScalarFieldContainer[str]
    delivering: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lists_turns: bool = ..., turns: _Optional[_Iterable[str]] = ..., delivering: _Optional[_Iterable[str]] = ...) -> None: ...

class TurnRequested(_message.Message):
    __slots__ = ("turn", "attempt", "fresh_run", "run", "parent", "turn_class", "caller", "model", "kind", "api", "tool_call_ids", "head_digest", "previous_response", "body_hash", "age_ms", "without", "traceparent", "principal", "body_bytes", "priority", "answer_tokens_max", "sent_to")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FRESH_RUN_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    TURN_CLASS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    API_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    BODY_HASH_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    SENT_TO_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    fresh_run: str
    run: str
    parent: str
    turn_class: TurnClass
    caller: str
    model: str
    kind: Kind
    api: str
    tool_call_ids: _containers.RepeatedScalarFieldContainer[str]
    head_digest: bytes
    previous_response: str
    body_hash: bytes
    age_ms: int
    without: _containers.RepeatedScalarFieldContainer[str]
    traceparent: str
    principal: str
    body_bytes: int
    priority: int
    answer_tokens_max: int
    sent_to: str
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., fresh_run: _Optional[str] = ..., run: _Optional[str] = ..., parent: _Optional[str] = ..., turn_class: _Optional[_Union[TurnClass, str]] = ..., caller: _Optional[str] = ..., model: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., api: _Optional[str] = ..., tool_call_ids: _Optional[_Iterable[str]] = ..., head_digest: _Optional[bytes] = ..., previous_response: _Optional[str] = ..., body_hash: _Optional[bytes] = ..., age_ms: _Optional[int] = ..., without: _Optional[_Iterable[str]] = ..., traceparent: _Optional[str] = ..., principal: _Optional[str] = ..., body_bytes: _Optional[int] = ..., priority: _Optional[int] = ..., answer_tokens_max: _Optional[int] = ..., sent_to: _Optional[str] = ...) -> None: ...

class TurnAbandoned(_message.Message):
    __slots__ = ("turn", "attempt")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class TurnReturned(_message.Message):
    __slots__ = ("turn", "attempt", "replica", "reason", "headers")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[TurnReturned.Reason]
        REASON_UNREACHABLE: _ClassVar[TurnReturned.Reason]
        REASON_BUSY: _ClassVar[TurnReturned.Reason]
        REASON_LIMITED: _ClassVar[TurnReturned.Reason]
    REASON_UNSPECIFIED: TurnReturned.Reason
    REASON_UNREACHABLE: TurnReturned.Reason
    REASON_BUSY: TurnReturned.Reason
    REASON_LIMITED: TurnReturned.Reason
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    replica: str
    reason: TurnReturned.Reason
    headers: _containers.ScalarMap[str, str]
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., replica: _Optional[str] = ..., reason: _Optional[_Union[TurnReturned.Reason, str]] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TurnStarted(_message.Message):
    __slots__ = ("turn", "attempt")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: str
    def __init__(self, turn: _Optional[str] = ...) -> None: ...

class ToolCallSeen(_message.Message):
    __slots__ = ("turn", "ids")
    TURN_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, turn: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ResponseSeen(_message.Message):
    __slots__ = ("turn", "response")
    TURN_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    turn: str
    response: str
    def __init__(self, turn: _Optional[str] = ..., response: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens", "cached_known")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_KNOWN_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_known: bool
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., cached_known: bool = ...) -> None: ...

class TurnFinished(_message.Message):
    __slots__ = ("turn", "attempt", "finish_reason", "usage", "paused", "tool_call_ids", "tools")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    finish_reason: str
    usage: Usage
    paused: bool
    tool_call_ids: _containers.RepeatedScalarFieldContainer[str]
    tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., paused: bool = ..., tool_call_ids: _Optional[_Iterable[str]] = ..., tools: _Optional[_Iterable[str]] = ...) -> None: ...

class TurnFailed(_message.Message):
    __slots__ = ("turn", "attempt", "reason")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    reason: str
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AnswerTold(_message.Message):
    __slots__ = ("turn", "attempt", "status", "headers", "excerpt")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    status: int
    headers: _containers.ScalarMap[str, str]
    excerpt: str
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., status: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., excerpt: _Optional[str] = ...) -> None: ...

class LeaseTold(_message.Message):
    __slots__ = ("turn", "attempt", "replica", "fence", "outcome", "answer", "prompt_tokens", "answer_tokens")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[LeaseTold.Outcome]
        OUTCOME_UNUSED: _ClassVar[LeaseTold.Outcome]
        OUTCOME_ANSWERED: _ClassVar[LeaseTold.Outcome]
        OUTCOME_LIMITED: _ClassVar[LeaseTold.Outcome]
        OUTCOME_FAILED: _ClassVar[LeaseTold.Outcome]
    OUTCOME_UNSPECIFIED: LeaseTold.Outcome
    OUTCOME_UNUSED: LeaseTold.Outcome
    OUTCOME_ANSWERED: LeaseTold.Outcome
    OUTCOME_LIMITED: LeaseTold.Outcome
    OUTCOME_FAILED: LeaseTold.Outcome
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    replica: str
    fence: int
    outcome: LeaseTold.Outcome
    answer: AnswerTold
    prompt_tokens: int
    answer_tokens: int
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., replica: _Optional[str] = ..., fence: _Optional[int] = ..., outcome: _Optional[_Union[LeaseTold.Outcome, str]] = ..., answer: _Optional[_Union[AnswerTold, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., answer_tokens: _Optional[int] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("run", "principal", "age_ms")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    run: str
    principal: str
    age_ms: int
    def __init__(self, run: _Optional[str] = ..., principal: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class Locate(_message.Message):
    __slots__ = ("query", "response", "principal")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    query: str
    response: str
    principal: str
    def __init__(self, query: _Optional[str] = ..., response: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class ReplicaSuspected(_message.Message):
    __slots__ = ("replica", "reason")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    replica: str
    reason: str
    def __init__(self, replica: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReplicaUnusable(_message.Message):
    __slots__ = ("replica", "reason")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    replica: str
    reason: str
    def __init__(self, replica: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session", "scheduler_epoch", "protocol")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    session: str
    scheduler_epoch: str
    protocol: Protocol
    def __init__(self, session: _Optional[str] = ..., scheduler_epoch: _Optional[str] = ..., protocol: _Optional[_Union[Protocol, _Mapping]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("turn", "attempt", "run", "reason", "waits_for")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    run: str
    reason: str
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., run: _Optional[str] = ..., reason: _Optional[str] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("turn", "attempt", "run", "replica", "turn_seq", "hold_reason", "held_ms", "priority", "fence", "level", "answer_share", "answer_least", "model")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    TURN_SEQ_FIELD_NUMBER: _ClassVar[int]
    HOLD_REASON_FIELD_NUMBER: _ClassVar[int]
    HELD_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SHARE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_LEAST_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    run: str
    replica: str
    turn_seq: int
    hold_reason: str
    held_ms: int
    priority: int
    fence: int
    level: int
    answer_share: float
    answer_least: int
    model: str
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., run: _Optional[str] = ..., replica: _Optional[str] = ..., turn_seq: _Optional[int] = ..., hold_reason: _Optional[str] = ..., held_ms: _Optional[int] = ..., priority: _Optional[int] = ..., fence: _Optional[int] = ..., level: _Optional[int] = ..., answer_share: _Optional[float] = ..., answer_least: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("turn", "attempt", "run", "status", "code", "message", "retry_after_ms")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    attempt: int
    run: str
    status: int
    code: str
    message: str
    retry_after_ms: int
    def __init__(self, turn: _Optional[str] = ..., attempt: _Optional[int] = ..., run: _Optional[str] = ..., status: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Replicas(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("name", "url", "models", "kind", "state", "api_key_env", "apis", "asks_usage", "tells_limits", "holds_limits", "passes_unasked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    API_KEY_ENV_FIELD_NUMBER: _ClassVar[int]
    APIS_FIELD_NUMBER: _ClassVar[int]
    ASKS_USAGE_FIELD_NUMBER: _ClassVar[int]
    TELLS_LIMITS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PASSES_UNASKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    models: _containers.RepeatedScalarFieldContainer[str]
    kind: Kind
    state: str
    api_key_env: str
    apis: _containers.RepeatedScalarFieldContainer[str]
    asks_usage: bool
    tells_limits: bool
    holds_limits: bool
    passes_unasked: bool
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., kind: _Optional[_Union[Kind, str]] = ..., state: _Optional[str] = ..., api_key_env: _Optional[str] = ..., apis: _Optional[_Iterable[str]] = ..., asks_usage: bool = ..., tells_limits: bool = ..., holds_limits: bool = ..., passes_unasked: bool = ...) -> None: ...

class RunForgotten(_message.Message):
    __slots__ = ("run", "principal")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    run: str
    principal: str
    def __init__(self, run: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class Located(_message.Message):
    __slots__ = ("query", "replica", "run")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    query: str
    replica: str
    run: str
    def __init__(self, query: _Optional[str] = ..., replica: _Optional[str] = ..., run: _Optional[str] = ...) -> None: ...

class BranchFollowed(_message.Message):
    __slots__ = ("run", "principal", "model", "tool_call_ids")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    run: str
    principal: str
    model: str
    tool_call_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run: _Optional[str] = ..., principal: _Optional[str] = ..., model: _Optional[str] = ..., tool_call_ids: _Optional[_Iterable[str]] = ...) -> None: ...
