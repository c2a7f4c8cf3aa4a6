"""What is wrong with a question about quotas that came from another process?

A dataplane of ours asks nothing of the kind, as its HTTP side has the same bounds: whoever does is of another version, or something else.
"""

from typing import Final

from luftpause.kit import quota_bounds as bounds
from luftpause.kit.wire.v1 import governor_pb2 as pb

TEXT_CHARS_MAX: Final = 1_024  # of names: a want holds its caller's


def mistake(question: pb.QuotaQuestion) -> str:
    """What to mend; empty: nothing is wrong."""
    match question.WhichOneof("question"):
        case "reserve":
            return _in_reserve(question.reserve)
        case "report":
            return _in_lease(question.report.lease) or _in_answer(question.report.answer) or _in_actual(question.report)
        case "renew" | "release" as ended:
            return _in_lease(getattr(question, ended))
        case "observe":
            return _in_text("target", question.observe.target) or _in_answer(question.observe)
        case "enable":
            return _in_text("target", question.enable.target)
        case _:
            return ""


def _in_reserve(asked: pb.QuotaReserve) -> str:
    texts = _in_text("target", asked.target) or _in_text("want", asked.want) or _in_text("caller", asked.caller)
    return texts or bounds.bad_units("cost", asked.cost, above=0.0) or _in_times(asked)


def _in_times(asked: pb.QuotaReserve) -> str:
    if not 0.0 <= asked.wait_seconds <= bounds.WAIT_SECONDS_MAX:
        return f"`wait_seconds` is {asked.wait_seconds:g}; give seconds from 0 to {bounds.WAIT_SECONDS_MAX:.0f}"
    least, most = bounds.LEASE_SECONDS_MIN, bounds.LEASE_SECONDS_MAX
    if asked.lease_seconds != 0 and not least <= asked.lease_seconds <= most:
        return f"`lease_seconds` is {asked.lease_seconds:g}; give seconds from {least:g} to {most:.0f}, or 0 for those that are configured"
    return ""


def _in_lease(lease: pb.QuotaLease) -> str:
    return _in_text("target", lease.target) or _in_text("want", lease.want) or bounds.bad_fence(lease.fence)


def _in_answer(told: pb.QuotaAnswer) -> str:
    if len(told.headers) > bounds.HEADERS_MAX or any(len(value) > bounds.HEADER_CHARS_MAX for value in told.headers.values()):
        return f"`headers` may be {bounds.HEADERS_MAX} at most, with {bounds.HEADER_CHARS_MAX} characters each"
    return bounds.bad_status(told.status or None)


def _in_actual(told: pb.QuotaReport) -> str:
    return bounds.bad_units("actual", told.actual, above=None)


def _in_text(field: str, text: str) -> str:
    return f"`{field}` has {len(text)} characters; {TEXT_CHARS_MAX} are the most" if len(text) > TEXT_CHARS_MAX else ""
