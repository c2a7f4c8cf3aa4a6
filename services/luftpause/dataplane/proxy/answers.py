"""What does the client of a proxied call read when the governor, or the way to the target, says no?"""

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.proxy.headers import without_retry
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CLOSE
from luftpause.kit import quota_evidence
from luftpause.kit.quota_port import NotNow, Refused

if TYPE_CHECKING:
    from luftpause.dataplane.proxy.leg import Failure

STATUSES: Final = {
    "unknown_target": 404, "target_removed": 404, "too_large": 413, "queue_full": 503, "out_of_credit": 402, "retry_budget": 429,
}  # fmt: skip


class Refusal(Struct, frozen=True, gc=False):
    """A target's refusal by quota, whole; `retry_seconds`: when this caller's window opens."""

    head: AnswerHead
    body: bytes
    retry_seconds: float


def held(seconds: float) -> bytes:
    """How long a call waited for quota."""
    return b"x-luftpause-held-ms: %d\r\n" % round(seconds * 1000)


def advice(seconds: float | None) -> bytes:
    """Header lines that say when to come again, or that no retry can help."""
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in quota_evidence.advice(seconds))


def with_advice(lines: bytes, seconds: float | None) -> bytes:
    """The header lines of a target's refusal, with our word on when to come again in place of its own."""
    return without_retry(lines) + advice(seconds)


def whole(kept: Refusal, seconds: float | None, *, more: bytes, close: bool, bodiless: bool) -> bytes:
    """A refusal that was held back, after all."""
    lines = with_advice(kept.head.lines, seconds)
    length = b"" if bodiless else b"content-length: %d\r\n" % len(kept.body)
    return b"%b%b%b%b\r\n%b" % (lines, length, more, CLOSE if close else b"", kept.body)


def refused(target: str, answer: NotNow | Refused) -> tuple[Rejection, bytes]:
    """The governor's own no, with further header lines."""
    if isinstance(answer, NotNow):
        message = f"the quota of {target} is spent for now ({answer.reason}); come again in {answer.retry_seconds:.1f} s"
        rejection = Rejection(429, "quota_wait", message, retry_after_s=max(1, math.ceil(answer.retry_seconds)))
        return rejection, advice(answer.retry_seconds).partition(b"\r\n")[2]
    status = STATUSES.get(answer.code, 400)
    return Rejection(status, answer.code, answer.message), b"" if status == 503 else advice(None)


def lost(target: str, failure: "Failure", *, repeatable: bool) -> Rejection:
    """No answer came from the target."""
    if failure.why == "unreachable":
        return Rejection(502, "target_unreachable", f"{target} can't be reached: {failure.reason}; the call was not made")
    again = "it may be sent again" if repeatable else "it may have been carried out: look before sending it again"
    status = 504 if failure.why.endswith("_timeout") else 502
    return Rejection(status, "target_failed", f"{target} {failure.reason}; {again}")
