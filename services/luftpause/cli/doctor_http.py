"""What does an address answer?"""

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
import orjson
from msgspec import Struct

from luftpause.cli.doctor_unreached import why

SECONDS_MAX: Final = 5.0
BYTES_MAX: Final = 16 * 2**20
SKEW_SECONDS_MAX: Final = 5.0  # `Date` has whole seconds, and an answer takes its time


class Answer(Struct, frozen=True):
    """`status` 0: none came, `problem` says why, `mend` what helps if that is known; `refused`: nobody could be reached there.

    `skew_seconds`: its clock less ours, about.
    """

    status: int
    body: bytes = b""
    problem: str = ""
    mend: str = ""
    refused: bool = False
    headers: dict[str, str] = {}
    skew_seconds: float = 0.0

    def json(self) -> Any:
        """None: it is no JSON object."""
        try:
            found: object = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


async def get(client: httpx.AsyncClient, url: str, headers: dict[str, str] | None = None) -> Answer:
    """Redirects are not followed: an engine's key must not go elsewhere."""
    try:
        async with asyncio.timeout(SECONDS_MAX), client.stream("GET", url, headers=headers) as answer:
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > BYTES_MAX:
                    break
            return Answer(answer.status_code, bytes(body), headers=dict(answer.headers), skew_seconds=_skew(answer.headers.get("date")))
    except (TimeoutError, httpx.TimeoutException):
        return Answer(0, problem=f"no answer within {SECONDS_MAX:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem, mend = why(error, url)
        return Answer(0, problem=problem, mend=mend, refused=isinstance(error, httpx.ConnectError))


def _skew(date: str | None) -> float:
    if not date:
        return 0.0
    try:
        told = parsedate_to_datetime(date)
    except ValueError:
        return 0.0
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
