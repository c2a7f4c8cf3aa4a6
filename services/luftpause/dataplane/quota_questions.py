"""What do agents that call other APIs themselves ask about their leases (`POST /v1/quota/{target}/…`), and what are they told?"""

from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

import orjson
from msgspec import Struct

from luftpause.dataplane import quota_bodies as bodies
from luftpause.dataplane.identify import CALLER_BYTES_MAX
from luftpause.dataplane.quota_bodies import Body
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import TurnClass
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import error_type
from luftpause.kit.ids import random_text
from luftpause.kit.quota_cost import cost_of_method
from luftpause.kit.quota_port import Gone, Granted, NotNow, QuotaPort, Refused, Released, Reported
from luftpause.kit.quota_priority import priority_of

if TYPE_CHECKING:
    from luftpause.dataplane.quota_call import QuotaCall

JSON: Final = "application/json"
CONTENT_TYPES_KNOWN_MAX: Final = 64
NO_RETRY: Final = b"x-should-retry: false\r\n"
STATUS_OF_REFUSALS: Final = {
    "unknown_target": 404, "too_large": 413, "queue_full": 503, "out_of_credit": 402, "retry_budget": 429, "target_removed": 404,
}  # fmt: skip
NOT_JSON: Final = Rejection(415, "content_type", "the content type must be JSON: send `Content-Type: application/json`")
LEASE_GONE: Final = Rejection(
    409, "lease_gone", "there is no such lease any more; what it reserved counts as used. Reserve again before the next call"
)  # fmt: skip

OPERATORS_ONLY: Final = Rejection(
    403, "operators_only",
    "this token is a caller's; a target is enabled by an operator, who has LUFTPAUSE_TOKEN, the token that the dataplane was started with",
)  # fmt: skip

B = TypeVar("B", bound=Body)


class Reply(Struct, frozen=True, gc=False):
    """`more`: header lines."""

    body: bytes
    status: int = 200
    more: bytes = b""


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """`more`: header lines."""

    def __init__(self, rejection: Rejection, more: bytes = b"") -> None:
        super().__init__(rejection.message)
        self.rejection = rejection
        self.more = more


class QuotaQuestions:
    """Each raises Refusal, or what the port raises."""

    def __init__(self, config: GovernorConfig, port: QuotaPort) -> None:
        self._config = config
        self._port = port

    async def reserve(self, call: "QuotaCall") -> Reply:
        asked = _read(call, bodies.Reserve)
        said = call.head.identity(call.principal)
        if isinstance(said, Rejection):
            raise Refusal(said)
        caller = said.caller or _cut(asked.caller or "")
        batch = said.turn_class is TurnClass.BATCH if asked.turn_class is None else asked.turn_class == "batch"
        priority = priority_of(self._config.callers, caller, _claimed(asked, said.priority), batch=batch)
        lease = asked.lease or random_text()
        call.asks(waits=asked.wait_ms > 0)
        answer = await self._port.reserve(
            call.target,
            _want(call, lease),
            caller=caller,
            priority=priority,
            cost=bodies.cost_of(asked.cost) or cost_of_method(self._profile(call.target), asked.method),
            lease_seconds=asked.lease_ms / 1000 if asked.lease_ms is not None else None,
            wait_seconds=asked.wait_ms / 1000,
            retry=asked.retry,
        )
        match answer:
            case Granted():
                expires = round(answer.expires_seconds * 1000)
                return _json({"lease": lease, "fence": answer.fence, "expiresMs": expires, "level": answer.level})
            case NotNow():
                return _not_now(call.target, lease, answer)
            case Refused():
                raise _refusal(answer)

    def _profile(self, target: str) -> str | None:
        found = self._config.targets.get(target)
        return found.profile if found is not None else None

    async def report(self, call: "QuotaCall") -> Reply:
        told = _read(call, bodies.Report)
        answer = await self._port.report(
            call.target,
            _want(call, told.lease),
            told.fence,
            status=told.status,
            headers=bodies.readable(told.headers),
            body_excerpt=told.body,
            actual=told.actual,
        )
        return _reported(answer)

    async def renew(self, call: "QuotaCall") -> Reply:
        told = _read(call, bodies.Lease)
        answer = await self._port.renew(call.target, _want(call, told.lease), told.fence)
        match answer:
            case Gone():
                raise Refusal(LEASE_GONE)
            case Refused():
                raise _refusal(answer)
            case _:
                return _json({"expiresMs": round(answer.expires_seconds * 1000)})

    async def release(self, call: "QuotaCall") -> Reply:
        told = _read(call, bodies.Lease)
        answer = await self._port.release(call.target, _want(call, told.lease), told.fence)
        if isinstance(answer, Refused):
            raise _refusal(answer)
        return _json({"released": isinstance(answer, Released)})

    async def observe(self, call: "QuotaCall") -> Reply:
        told = _read(call, bodies.Observe)
        headers = bodies.readable(told.headers)
        return _reported(await self._port.observe(call.target, status=told.status, headers=headers, body_excerpt=told.body))

    async def enable(self, call: "QuotaCall") -> Reply:
        """An operator's word. Whoever has a token of its own is a caller; where nobody has one everybody may say so."""
        if call.principal:
            raise Refusal(OPERATORS_ONLY)
        answer = await self._port.enable(call.target)
        if isinstance(answer, Refused):
            raise _refusal(answer)
        return Reply(b"", 204)


# ---- what was asked ---------------------------------------------------------------------------------------------


def _read(call: "QuotaCall", kind: type[B]) -> B:
    if not _is_json(call.head.named.get(b"content-type", b"")):
        raise Refusal(NOT_JSON)
    found = bodies.read(kind, call.body)
    if isinstance(found, Rejection):
        raise Refusal(found)
    return found


@lru_cache(maxsize=CONTENT_TYPES_KNOWN_MAX)
def _is_json(value: bytes) -> bool:
    kind = value.decode("latin-1").partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


def _claimed(asked: bodies.Reserve, header: int) -> int | None:
    """What the body claims, else the header, which has been checked; -1: there is none."""
    if asked.priority is None:
        return header if header >= 0 else None
    if asked.priority not in {0, 1, 2}:
        raise Refusal(Rejection(400, "bad_priority", f"`priority` is {asked.priority}; it must be 0, 1 or 2"))
    return asked.priority


def _want(call: "QuotaCall", lease: str) -> str:
    """A lease belongs to whoever reserved it, where callers have tokens of their own."""
    owner = call.principal
    return f"call:{len(owner)}:{owner}:{lease}"  # names of callers may hold colons too


def _cut(caller: str) -> str:
    return caller.encode()[:CALLER_BYTES_MAX].decode(errors="ignore")


# ---- what is answered -------------------------------------------------------------------------------------------


def _json(fields: dict[str, object]) -> Reply:
    return Reply(orjson.dumps(fields))


def _not_now(target: str, lease: str, answer: NotNow) -> Reply:
    """The one shape of errors, and when to ask again: in both headers and in the body. With the name that keeps its place."""
    milliseconds = max(1, ceil(answer.retry_seconds * 1000))
    error = {
        "message": f"no quota of {target} now ({answer.reason}); ask again in {milliseconds} ms",
        "type": error_type(429),
        "code": "quota",
        "reason": answer.reason,
        "retryMs": milliseconds,
        "lease": lease,
    }
    when = b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (max(1, ceil(answer.retry_seconds)), milliseconds)
    return Reply(orjson.dumps({"type": "error", "error": error}), 429, when)


def _refusal(refused: Refused) -> Refusal:
    status = STATUS_OF_REFUSALS.get(refused.code, 400)
    return Refusal(Rejection(status, refused.code, refused.message), NO_RETRY if status == 429 else b"")


def _reported(answer: Reported | Refused) -> Reply:
    if isinstance(answer, Refused):
        raise _refusal(answer)
    fields: dict[str, object] = {"settled": answer.settled, "limited": answer.limited}
    if answer.kind is not None:
        fields["kind"] = answer.kind
    if answer.retry_seconds is not None:
        fields["retryMs"] = ceil(answer.retry_seconds * 1000)
    return _json(fields)
