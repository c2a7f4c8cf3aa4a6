"""How is a classifier loaded, and how long does it take?"""

import asyncio
import time
from typing import Any, Final

import httpx
from msgspec import Struct

from luftpause.cli.load_run import notes

QUESTION_CHARS: Final = 300
AFTER_ERROR_SECONDS: Final = 1.0


class Deciding(Struct, frozen=True):
    """So many clients, each of which asks again as soon as it has its answer. `url`: any endpoint that takes `/classify` bodies."""

    clients: int = 0
    url: str = ""
    model: str = ""


class Decided(Struct, frozen=True):
    """A question that was asked `at_s` after the begin of the load; `error` None: it was answered."""

    at_s: float
    seconds: float
    error: str | None = None


async def decide(client: httpx.AsyncClient, deciding: Deciding, began: float, asked: list[Decided]) -> None:
    """Until it is cancelled: adds what came to `asked`."""

    async def one(number: int) -> None:
        count = 0
        while True:
            count += 1
            name = f"{number}-{count}"
            asked.append(await _ask(client, deciding, f"Question {name}." + notes(name, QUESTION_CHARS), began))
            if asked[-1].error is not None:
                await asyncio.sleep(AFTER_ERROR_SECONDS)

    await asyncio.gather(*(one(number) for number in range(deciding.clients)))


async def _ask(client: httpx.AsyncClient, deciding: Deciding, text: str, began: float) -> Decided:
    start = time.monotonic()
    error = None
    try:
        answer = await client.post(deciding.url, json={"model": deciding.model, "input": text})
        error = None if answer.is_success and _labels(answer) else f"HTTP {answer.status_code}"
    except httpx.HTTPError as failure:
        error = type(failure).__name__
    return Decided(start - began, time.monotonic() - start, error)


def _labels(answer: httpx.Response) -> bool:
    """Is there a label for what was asked?"""
    try:
        body: Any = answer.json()
        return bool(body["data"][0]["label"])
    except (ValueError, KeyError, IndexError, TypeError):
        return False
