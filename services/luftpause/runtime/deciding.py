"""Which model answers when the caller names none, and what does `decide` ask it?"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.text import whole
from luftpause.runtime.ports import Decision, ModelClient, TurnError
from luftpause.runtime.refusals import bad_argument

LABELS_MIN: Final = 2
LABELS_MAX: Final = 20
PATIENCE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.25


class Models:
    """Questions at the same time share one request to the dataplane."""

    def __init__(self, client: ModelClient, default: str | None, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._client = client
        self._default = default
        self._generative = _Served(client.models, patience_seconds)
        self._classifiers = _Served(client.classifiers, patience_seconds)

    async def choose(self, asked: str | None) -> str:
        """A generative model. Raises LuftpauseError (`unknown_model`, `dataplane_unreachable`)."""
        if chosen := asked or self._default:
            return chosen
        return _only(await self._generative.now(), "generative model", "or set runtime.default_model")

    async def decide(self, text: str, labels: Sequence[str] | None, model: str | None, caller: str) -> Decision:
        """Raises LuftpauseError (`bad_argument`, `unknown_model`, `dataplane_unreachable`, `not_decided`)."""
        if not text.strip():
            raise bad_argument("input", "it is empty; say what is to be decided")
        if labels is not None:
            _check(labels)
        if labels is not None:
            chosen = await self.choose(model)
        else:
            chosen = model or _only(await self._classifiers.now(), "classifier", "or give labels for a generative model to choose from")
        try:
            return await self._client.decide(chosen, whole(text), None if labels is None else [whole(label) for label in labels], caller)
        except TurnError as error:
            retry = None if error.retry_after_s is None else max(1, round(error.retry_after_s))
            raise LuftpauseError(whole(error.message), code="not_decided", status=502, retry_after_s=retry) from error


class _Served:
    """`patience_seconds`: so long the dataplane may be away, as it is while it starts anew."""

    def __init__(self, ask: Callable[[], Awaitable[tuple[str, ...]]], patience_seconds: float) -> None:
        self._ask = ask
        self._patience_seconds = patience_seconds
        self._asking: asyncio.Task[tuple[str, ...]] | None = None

    async def now(self) -> tuple[str, ...]:
        if self._asking is None:
            self._asking = asyncio.create_task(self._fetch())
            self._asking.add_done_callback(_heard)
        try:
            return await asyncio.shield(self._asking)
        except TurnError as error:
            raise LuftpauseError(
                f"can't ask the dataplane which models are served: {error.message}; see that it is up, or name a model",
                code="dataplane_unreachable",
                status=502,
            ) from error

    async def _fetch(self) -> tuple[str, ...]:
        now = asyncio.get_running_loop().time
        until = now() + self._patience_seconds
        try:
            while True:
                try:
                    return await self._ask()
                except TurnError as error:
                    if error.retry_after_s is None or now() >= until:
                        raise
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._asking = None


def _heard(asked: asyncio.Task[tuple[str, ...]]) -> None:
    """Nobody may be left who waits for it."""
    if not asked.cancelled():
        asked.exception()


def _only(served: Sequence[str], kind: str, otherwise: str) -> str:
    """Raises LuftpauseError (`unknown_model`) that lists them."""
    if len(served) == 1:
        return served[0]
    if not served:
        why = f"model: no {kind} is served; start an engine, or name a model that will be"
    else:
        why = f"model: several are served; name one of {', '.join(sorted(served))}, {otherwise}"
    raise LuftpauseError(why, code="unknown_model", status=400)


def _check(labels: Sequence[str]) -> None:
    if not LABELS_MIN <= len(labels) <= LABELS_MAX:
        raise bad_argument("labels", f"there are {len(labels)}; give {LABELS_MIN} to {LABELS_MAX}")
    for label in labels:
        if not label or label[0].isspace():
            raise bad_argument("labels", f"{label!r} is empty or begins with a space")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise bad_argument("labels", f"{twice!r} is there twice; each must be different")
