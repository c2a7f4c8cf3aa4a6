"""What does a client say to `/v1/quota/…`, and what does it hear?"""

from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
from msgspec import Struct

from luftpause.client.settings import Asked, Settings
from luftpause.kit.json_object import json_object

POLL_SECONDS_MAX: Final = 50.0  # one question waits this long; the next one keeps its place
RESERVE, REPORT, RENEW, RELEASE, OBSERVE = "reserve", "report", "renew", "release", "observe"
QUEUE_FULL: Final = "queue_full"
OF_QUOTAS: Final = frozenset({402, 413, 429})  # what the governor itself may answer to a wish; every other no is a mistake of the set-up


class Question(Struct, frozen=True):
    """One request to luftpause; its answer may take `seconds`."""

    what: str
    body: bytes
    caller: str | None = None
    seconds: float = 5.0


class Reply(Struct, frozen=True):
    status: int
    body: bytes


class Lease(Struct, frozen=True):
    name: str
    fence: int
    expires_seconds: float
    level: int


class NotYet(Struct, frozen=True):
    """`body` and `status` are the answer for the caller, if it can't wait."""

    retry_seconds: float
    status: int
    body: bytes


class Never(Struct, frozen=True):
    """No wait helps."""

    status: int
    body: bytes


class Mistaken(Struct, frozen=True):
    """The transport is set up wrongly: its token, its target, its priority. `message` says what would do."""

    message: str


class Away(Struct, frozen=True):
    """luftpause can't be asked now."""

    reason: str


class Verdict(Struct, frozen=True):
    """What the governor made of an answer."""

    limited: bool = False
    retry_seconds: float | None = None


def reserve(settings: Settings, asked: Asked, name: str, wait_seconds: float, *, retry: bool) -> Question:
    said: dict[str, Any] = {"lease": name, "waitMs": round(wait_seconds * 1000), "retry": retry, "method": asked.method}
    if settings.batch:
        said["class"] = "batch"
    if asked.priority is not None:
        said["priority"] = asked.priority
    if asked.cost is not None:
        said["cost"] = asked.cost
    return Question(RESERVE, orjson.dumps(said), asked.caller, wait_seconds + 10.0)


def report(lease: Lease, status: int | None, headers: Mapping[str, str], excerpt: str) -> Question:
    said = {"lease": lease.name, "fence": lease.fence, "status": status, "headers": headers, "body": excerpt}
    return Question(REPORT, orjson.dumps(said))


def renew(lease: Lease) -> Question:
    return Question(RENEW, orjson.dumps({"lease": lease.name, "fence": lease.fence}))


def release(lease: Lease) -> Question:
    return Question(RELEASE, orjson.dumps({"lease": lease.name, "fence": lease.fence}))


def observe(status: int, headers: Mapping[str, str]) -> Question:
    return Question(OBSERVE, orjson.dumps({"status": status, "headers": headers}))


def reserved(reply: Reply) -> Lease | NotYet | Never | Mistaken | Away:
    """Read the answer to `reserve`. An answer of another form than is documented is as good as none."""
    said = json_object(reply.body)
    if reply.status == 200:
        name, fence = said.get("lease"), said.get("fence")
        if isinstance(name, str) and isinstance(fence, int):
            return Lease(name, fence, _seconds(said, "expiresMs") or 60.0, int(said.get("level", 0)))
        return Away("it did not answer with a lease; does the URL lead to luftpause's dataplane?")
    told = _error(said)
    message = str(told.get("message", f"it answered {reply.status}"))
    if reply.status == 429 and (retry := _seconds(told, "retryMs")) is not None:
        return NotYet(retry, reply.status, reply.body)
    if told.get("code") == QUEUE_FULL:
        return NotYet(1.0, reply.status, reply.body)
    return Never(reply.status, reply.body) if reply.status in OF_QUOTAS else Mistaken(message)


def heard(status: int, body: bytes) -> Reply | Away:
    """An answer to whatever question, as it came; one that says that nobody can answer now is none."""
    error = _error(json_object(body))
    if status in {502, 503, 504} and error.get("code") != QUEUE_FULL:
        return Away(str(error.get("message", f"it answered {status}")))
    return Reply(status, body)


def verdict(reply: Reply) -> Verdict:
    """Read the answer to `report`."""
    said = json_object(reply.body) if reply.status == 200 else {}
    return Verdict(bool(said.get("limited", False)), _seconds(said, "retryMs"))


def _error(said: Mapping[str, Any]) -> Mapping[str, Any]:
    error = said.get("error")
    return cast("Mapping[str, Any]", error) if isinstance(error, dict) else {}


def _seconds(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
