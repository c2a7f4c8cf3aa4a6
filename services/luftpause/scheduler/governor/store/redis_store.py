"""How is the shared ledger asked in Redis or Valkey?

Each question is one Lua script, so nothing comes between what it reads and what it writes. All keys of a target have one hash tag.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from luftpause.scheduler.governor.store.port import (
    Answer,
    Asked,
    Enable,
    Hint,
    Release,
    Renew,
    Report,
    Reserve,
    Restore,
    StoreDownError,
    Waiting,
)  # fmt: skip

SCRIPTS: Final[Mapping[type[Asked], str]] = {
    Reserve: "reserve", Report: "report", Renew: "renew", Release: "release", Waiting: "waiting", Enable: "enable", Restore: "restore",
}  # fmt: skip
CONNECTIONS_MAX: Final = 16
HINT_RETRY_SECONDS: Final = 1.0
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Script(msgspec.Struct, frozen=True):
    source: str
    sha: str


class HintBody(msgspec.Struct):
    what: str = ""
    seconds: float = 0.0
    node: str = ""


_NO_ANSWER: Final = (TimeoutError, RedisError, OSError, msgspec.DecodeError)
_HINT: Final = msgspec.msgpack.Decoder(HintBody)


def _hint(target: str, data: bytes) -> Hint:
    """Whoever shares the server may say anything there; what can't be read is a hint to look."""
    try:
        body = _HINT.decode(data)
    except msgspec.DecodeError:
        body = HintBody()
    return Hint(target, body.what, body.seconds, body.node)


@cache
def script(question: type[Asked]) -> Script:
    """What a server runs for a question: the common part, then its own."""
    folder = files("luftpause.scheduler.governor.store") / "lua"
    source = "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in ("common", SCRIPTS[question]))
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())  # Redis names scripts by it


def keys_of(prefix: str, target: str, node: str) -> tuple[str, ...]:
    tag = f"{prefix}:{{{target}}}"
    return (f"{tag}:ledger", f"{tag}:leases", f"{tag}:expiries", f"{tag}:waiting", f"{tag}:told:{node}")


class RedisStore:
    """
    `url`: redis://, rediss:// or unix://. `answer_seconds`: one try; the second one, on another connection, has the rest of `down_seconds`.

    Questions may be asked twice: a second time they change nothing.
    """

    def __init__(self, url: str, *, prefix: str = "luftpause", answer_seconds: float = 0.05, down_seconds: float = 0.25) -> None:
        self._prefix = prefix
        self._answer_seconds = answer_seconds
        self._down_seconds = down_seconds
        pool = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS_MAX, timeout=None, retry=Retry(NoBackoff(), 0), socket_timeout=None, protocol=2
        )  # fmt: skip
        self._redis: Redis = Redis.from_pool(pool)
        # Hints come on a connection of their own that may stay silent for hours.
        self._listener: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=None, health_check_interval=15, protocol=2)

    async def ask(self, target: str, question: Asked) -> Answer:
        """Raises StoreDownError."""
        try:
            async with asyncio.timeout(self._down_seconds):
                try:
                    async with asyncio.timeout(self._answer_seconds):
                        return await self._once(target, question)
                except _NO_ANSWER:
                    return await self._once(target, question)
        except _NO_ANSWER as error:
            raise StoreDownError(f"{type(error).__name__}: {error}" if str(error) else f"no answer in {self._down_seconds:g} s") from error

    async def _once(self, target: str, question: Asked) -> Answer:
        keys = keys_of(self._prefix, target, question.node)
        body = _ENCODER.encode(question)
        run = script(type(question))
        try:
            raw = await self._redis.evalsha(run.sha, len(keys), *keys, body)  # pyright: ignore[reportArgumentType]
        except NoScriptError:
            raw = await self._redis.eval(run.source, len(keys), *keys, body)  # pyright: ignore[reportArgumentType]
        return _ANSWER.decode(cast("bytes", raw))

    async def hints(self) -> AsyncIterator[Hint]:
        """Until cancelled."""
        before, after = f"{self._prefix}:{{", "}:ledger:events"
        while True:
            try:
                async with self._listener.pubsub() as subscription:
                    await subscription.psubscribe(f"{before}*{after}")
                    async for message in cast("AsyncIterator[dict[str, Any]]", subscription.listen()):
                        if message["type"] == "pmessage":
                            channel: bytes = message["channel"]
                            yield _hint(channel.decode(errors="replace").removeprefix(before).removesuffix(after), message["data"])
            except (RedisError, OSError):
                await asyncio.sleep(HINT_RETRY_SECONDS)
                yield Hint()

    async def close(self) -> None:
        for client in (self._redis, self._listener):
            with suppress(RedisError, OSError):
                await client.aclose(close_connection_pool=True)
