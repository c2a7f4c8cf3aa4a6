from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuotaQuestions(_message.Message):
    __slots__ = ("questions",)
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    questions: _containers.RepeatedCompositeFieldContainer[QuotaQuestion]
    def __init__(self, questions: _Optional[_Iterable[_Union[QuotaQuestion, _Mapping]]] = ...) -> None: ...

class QuotaReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[QuotaReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[QuotaReply, _Mapping]]] = ...) -> None: ...

class QuotaQuestion(_message.Message):
    __slots__ = ("number", "reserve", "report", "renew", "release", "observe", "view", "watch", "forget", "enable")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    number: int
    reserve: QuotaReserve
    report: QuotaReport
    renew: QuotaLease
    release: QuotaLease
    observe: QuotaAnswer
    view: QuotaView
    watch: QuotaWatch
    forget: QuotaForget
    enable: QuotaEnable
    def __init__(self, number: _Optional[int] = ..., reserve: _Optional[_Union[QuotaReserve, _Mapping]] = ..., report: _Optional[_Union[QuotaReport, _Mapping]] = ..., renew: _Optional[_Union[QuotaLease, _Mapping]] = ..., release: _Optional[_Union[QuotaLease, _Mapping]] = ..., observe: _Optional[_Union[QuotaAnswer, _Mapping]] = ..., view: _Optional[_Union[QuotaView, _Mapping]] = ..., watch: _Optional[_Union[QuotaWatch, _Mapping]] = ..., forget: _Optional[_Union[QuotaForget, _Mapping]] = ..., enable: _Optional[_Union[QuotaEnable, _Mapping]] = ...) -> None: ...

class QuotaReserve(_message.Message):
    __slots__ = ("target", "want", "caller", "priority", "has_cost", "cost", "lease_seconds", "wait_seconds", "retry")
    class CostEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HAS_COST_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    target: str
    want: str
    caller: str
    priority: int
    has_cost: bool
    cost: _containers.ScalarMap[str, float]
    lease_seconds: float
    wait_seconds: float
    retry: bool
    def __init__(self, target: _Optional[str] = ..., want: _Optional[str] = ..., caller: _Optional[str] = ..., priority: _Optional[int] = ..., has_cost: bool = ..., cost: _Optional[_Mapping[str, float]] = ..., lease_seconds: _Optional[float] = ..., wait_seconds: _Optional[float] = ..., retry: bool = ...) -> None: ...

class QuotaLease(_message.Message):
    __slots__ = ("target", "want", "fence")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    target: str
    want: str
    fence: int
    def __init__(self, target: _Optional[str] = ..., want: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class QuotaAnswer(_message.Message):
    __slots__ = ("target", "status", "headers", "body_excerpt")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_EXCERPT_FIELD_NUMBER: _ClassVar[int]
    target: str
    status: int
    headers: _containers.ScalarMap[str, str]
    body_excerpt: str
    def __init__(self, target: _Optional[str] = ..., status: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., body_excerpt: _Optional[str] = ...) -> None: ...

class QuotaReport(_message.Message):
    __slots__ = ("lease", "answer", "actual")
    class ActualEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_FIELD_NUMBER: _ClassVar[int]
    lease: QuotaLease
    answer: QuotaAnswer
    actual: _containers.ScalarMap[str, float]
    def __init__(self, lease: _Optional[_Union[QuotaLease, _Mapping]] = ..., answer: _Optional[_Union[QuotaAnswer, _Mapping]] = ..., actual: _Optional[_Mapping[str, float]] = ...) -> None: ...

class QuotaView(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuotaEnable(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class QuotaWatch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuotaForget(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class QuotaReply(_message.Message):
    __slots__ = ("number", "granted", "not_now", "refused", "reported", "renewed", "released", "gone", "view", "event", "unknown", "unavailable", "enabled")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    NOT_NOW_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    number: int
    granted: QuotaGranted
    not_now: QuotaNotNow
    refused: QuotaRefused
    reported: QuotaReported
    renewed: QuotaRenewed
    released: QuotaDone
    gone: QuotaDone
    view: bytes
    event: bytes
    unknown: QuotaDone
    unavailable: str
    enabled: QuotaDone
    def __init__(self, number: _Optional[int] = ..., granted: _Optional[_Union[QuotaGranted, _Mapping]] = ..., not_now: _Optional[_Union[QuotaNotNow, _Mapping]] = ..., refused: _Optional[_Union[QuotaRefused, _Mapping]] = ..., reported: _Optional[_Union[QuotaReported, _Mapping]] = ..., renewed: _Optional[_Union[QuotaRenewed, _Mapping]] = ..., released: _Optional[_Union[QuotaDone, _Mapping]] = ..., gone: _Optional[_Union[QuotaDone, _Mapping]] = ..., view: _Optional[bytes] = ..., event: _Optional[bytes] = ..., unknown: _Optional[_Union[QuotaDone, _Mapping]] = ..., unavailable: _Optional[str] = ..., enabled: _Optional[_Union[QuotaDone, _Mapping]] = ...) -> None: ...

class QuotaGranted(_message.Message):
    __slots__ = ("fence", "expires_seconds", "level")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    fence: int
    expires_seconds: float
    level: int
    def __init__(self, fence: _Optional[int] = ..., expires_seconds: _Optional[float] = ..., level: _Optional[int] = ...) -> None: ...

class QuotaNotNow(_message.Message):
    __slots__ = ("retry_seconds", "reason")
    RETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    retry_seconds: float
    reason: str
    def __init__(self, retry_seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class QuotaRefused(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class QuotaReported(_message.Message):
    __slots__ = ("settled", "limited", "kind", "retry_seconds")
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    settled: bool
    limited: bool
    kind: str
    retry_seconds: float
    def __init__(self, settled: bool = ..., limited: bool = ..., kind: _Optional[str] = ..., retry_seconds: _Optional[float] = ...) -> None: ...

class QuotaRenewed(_message.Message):
    __slots__ = ("expires_seconds",)
    EXPIRES_SECONDS_FIELD_NUMBER: _ClassVar[int]
    expires_seconds: float
    def __init__(self, expires_seconds: _Optional[float] = ...) -> None: ...

class QuotaDone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
