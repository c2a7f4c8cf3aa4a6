"""How do a question to the rate governor and its answer look on the wire?"""

from collections.abc import Callable, Mapping
from typing import Final

from luftpause.kit import quota_bounds as bounds
from luftpause.kit.quota_port import Answer, Cost, Enabled, Gone, Granted, NotNow, Refused, Released, Renewed, Reported
from luftpause.kit.wire.v1 import governor_pb2 as pb

SERVICE = "luftpause.kit.wire.v1.Governor"
METHOD = f"/{SERVICE}/Ask"


# ---- questions --------------------------------------------------------------------------------------------------


def reserve(
    target: str,
    want: str,
    caller: str,
    priority: int,
    cost: Cost | None,
    lease_seconds: float | None,
    wait_seconds: float,
    *,
    retry: bool,
) -> pb.QuotaQuestion:
    asked = pb.QuotaReserve(
        target=target, want=want, caller=caller, priority=priority, has_cost=cost is not None, cost=dict(cost or {}),
        lease_seconds=lease_seconds or 0.0, wait_seconds=wait_seconds, retry=retry,
    )  # fmt: skip
    return pb.QuotaQuestion(reserve=asked)


def answer(target: str, status: int | None, headers: Mapping[str, str], body_excerpt: str) -> pb.QuotaAnswer:
    """What a provider said, cut to what the parser can use. Header names in lower case."""
    excerpt = body_excerpt[: bounds.EXCERPT_CHARS_MAX]
    return pb.QuotaAnswer(target=target, status=status or 0, headers=bounds.readable(headers), body_excerpt=excerpt)


def report(lease: pb.QuotaLease, said: pb.QuotaAnswer, actual: Cost | None) -> pb.QuotaQuestion:
    return pb.QuotaQuestion(report=pb.QuotaReport(lease=lease, answer=said, actual=dict(actual or {})))


# ---- replies ----------------------------------------------------------------------------------------------------


def reply(number: int, said: Answer) -> pb.QuotaReply:
    match said:
        case Granted():
            found = pb.QuotaReply(granted=pb.QuotaGranted(fence=said.fence, expires_seconds=said.expires_seconds, level=said.level))
        case NotNow():
            found = pb.QuotaReply(not_now=pb.QuotaNotNow(retry_seconds=said.retry_seconds, reason=said.reason))
        case Refused():
            found = pb.QuotaReply(refused=pb.QuotaRefused(code=said.code, message=said.message))
        case Reported():
            kind, retry = said.kind or "", said.retry_seconds
            found = pb.QuotaReply(reported=pb.QuotaReported(settled=said.settled, limited=said.limited, kind=kind, retry_seconds=retry))
        case Renewed():
            found = pb.QuotaReply(renewed=pb.QuotaRenewed(expires_seconds=said.expires_seconds))
        case Released() | Gone() | Enabled():
            found = pb.QuotaReply()
            getattr(found, _DONE[type(said)]).SetInParent()
    found.number = number
    return found


def said(reply: pb.QuotaReply, want: str) -> Answer | None:
    """The answer in a reply to a question about `want`; None: it is no answer, but says why there is none."""
    read = _ANSWERS.get(reply.WhichOneof("reply") or "")
    return read(reply, want) if read is not None else None


_DONE: Final[dict[type[Answer], str]] = {Released: "released", Gone: "gone", Enabled: "enabled"}


def _reported(reply: pb.QuotaReply, _: str) -> Reported:
    told = reply.reported
    return Reported(told.settled, told.limited, told.kind or None, told.retry_seconds if told.HasField("retry_seconds") else None)


_ANSWERS: Final[dict[str, Callable[[pb.QuotaReply, str], Answer]]] = {
    "granted": lambda reply, want: Granted(want, reply.granted.fence, reply.granted.expires_seconds, reply.granted.level),
    "not_now": lambda reply, _: NotNow(reply.not_now.retry_seconds, reply.not_now.reason),
    "refused": lambda reply, _: Refused(reply.refused.code, reply.refused.message),
    "reported": _reported,
    "renewed": lambda reply, _: Renewed(reply.renewed.expires_seconds),
    "released": lambda _, __: Released(),
    "gone": lambda _, __: Gone(),
    "enabled": lambda _, __: Enabled(),
}
