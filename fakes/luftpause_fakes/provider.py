"""How does the fake provider answer over HTTP?

Chat completions, messages, and for GitHub any other path. What it takes and refuses: provider_limits. What it tells: provider_families.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from luftpause_fakes import provider_answers as answers
from luftpause_fakes.http_server import serve_app
from luftpause_fakes.provider_families import Asked, Headers, Json, Refusal
from luftpause_fakes.provider_limits import Account, Left, Verdict
from luftpause_fakes.provider_options import ProviderOptions

__all__ = ["Provider", "ProviderOptions", "serve"]

APIS: Final[dict[str, answers.Api]] = {"/chat/completions": "chat", "/v1/messages": "messages"}


async def serve(options: ProviderOptions, announce: Path | None = None) -> None:
    """Serves until SIGTERM. Raises LuftpauseError for a taken port."""
    await serve_app(Provider(options), host=options.host, port=options.port, option="--port", announced=announce)


class Provider:
    """
    The ASGI app. `clock`: seconds, never going back; `epoch`: the time of day in seconds.

    A call is judged and booked when its body is there, before its answer takes any time; the answer's headers tell of that moment.
    """

    def __init__(
        self, options: ProviderOptions, clock: Callable[[], float] = time.monotonic, epoch: Callable[[], float] = time.time
    ) -> None:  # fmt: skip
        self.options = options
        self.family = options.details()
        self.account = Account(self.family.limits, self.family.hidden)
        self.taken = 0
        self.refused: dict[str, int] = {}  # by reason
        self.charged: dict[str, float] = {}  # units of calls that were taken, by limit
        self.in_flight = 0
        self.in_flight_at_first = 0  # when the first call was refused, that one too
        self._clock, self._epoch, self._began = clock, epoch, clock()
        self._random = Random(options.seed)

    @property
    def now(self) -> float:
        """Seconds on the account's clock, since it began."""
        return (self._clock() - self._began) * self.options.speed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            self.in_flight += 1
            try:
                await self._answer(scope, receive, send)
            finally:
                self.in_flight -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = str(scope["method"]), str(scope["path"])
        body = await _body(receive, self.options.body_bytes_max)
        if body is None:
            await _reply(send, 413, _error(f"the body is longer than {self.options.body_bytes_max} bytes"))
            return
        if method == "GET" and (free := self._free(path)) is not None:
            await _reply(send, 200, free)
            return
        api = _api(path) if method == "POST" else None
        if api is not None:
            await self._model(send, body, api)
        elif self.options.family == "github":
            await self._resource(send, path)
        else:
            await _reply(send, 404, _error(f"{method} {path} is not served; POST …/chat/completions and /v1/messages are"))

    def _free(self, path: str) -> Json | None:
        """What costs nothing."""
        if path == "/_fake":
            return self.shown()
        if path == "/health":
            return {"status": "ok"}
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": self.options.model, "object": "model", "created": 0, "owned_by": "fake"}]}
        if path == "/rate_limit" and self.options.family == "github":
            core = self._left()[0]
            used = core.limit - core.remaining
            told = {"limit": core.limit, "used": used, "remaining": core.remaining, "reset": int(self._epoch() + core.reset_seconds)}
            return {"resources": {core.name: told}, "rate": told}
        return None

    def shown(self) -> Json:
        """The answer to GET /_fake; `remaining` per limit."""
        remaining = {limit.name: limit.remaining for limit in self._left()}
        return {
            "taken": self.taken,
            "refused": self.refused,
            "charged": self.charged,
            "remaining": remaining,
            "inFlight": self.in_flight,
            "inFlightAtFirstRefusal": self.in_flight_at_first,
        }

    # ---- calls --------------------------------------------------------------------------------------------------

    async def _resource(self, send: Send, path: str) -> None:
        refusal = self._judge(self.family.cost(0, 0), Asked(0, status=self.options.refusal_status))
        if refusal is not None:
            await self._refuse(send, refusal)
            return
        number, headers = self.taken, self._headers()
        await asyncio.sleep(self._latency())
        await _reply(send, 200, {"id": number, "url": path}, headers)

    async def _model(self, send: Send, body: bytes, api: answers.Api) -> None:
        try:
            turn = answers.read(body, api)
        except answers.AskedError as error:
            await _reply(send, 400, _error(str(error)))
            return
        tokens = turn.prompt_tokens + turn.tokens_max
        cost = self.family.cost(turn.prompt_tokens, turn.tokens_max)
        refusal = self._judge(cost, Asked(tokens, turn.stream, self.options.refusal_status))
        if refusal is not None:
            await self._refuse(send, refusal)
            return
        number, said, seconds = self.taken, min(turn.tokens_max, self.options.answer_tokens), self._latency()
        headers = self._headers()
        if turn.stream:
            await self._stream(send, list(answers.parts(turn, number, said)), headers, seconds)
        else:
            await asyncio.sleep(seconds)
        for name in self.family.settles:
            self.account.give_back(name, turn.tokens_max - said, self.now)
        if not turn.stream:
            await _reply(send, 200, answers.whole(turn, number, said), headers)

    async def _stream(self, send: Send, parts: list[bytes], headers: Headers, seconds: float) -> None:
        await send(_start(200, headers | {"content-type": "text/event-stream; charset=utf-8"}))
        for part in parts:
            await asyncio.sleep(seconds / len(parts))
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _judge(self, cost: dict[str, float], asked: Asked) -> Refusal | None:
        verdict = self.account.ask(cost, self.now)
        if verdict.why is None:
            self.taken += 1
            for name, units in cost.items():
                self.charged[name] = self.charged.get(name, 0.0) + units
            return None
        self.in_flight_at_first = self.in_flight_at_first or self.in_flight
        self.refused[verdict.why] = self.refused.get(verdict.why, 0) + 1
        return self.family.refusal(self._told(verdict), self._left(), self._epoch(), asked)

    async def _refuse(self, send: Send, refusal: Refusal) -> None:
        await asyncio.sleep(self.options.refusal_seconds)
        if refusal.event is not None:
            stream = refusal.headers | {"content-type": "text/event-stream; charset=utf-8"}
            await send(_start(refusal.status, stream))
            await send({"type": "http.response.body", "body": b"event: error\n" + answers.event(refusal.event), "more_body": False})
        else:
            await _reply(send, refusal.status, refusal.body, refusal.headers)

    # ---- the caller's clock -------------------------------------------------------------------------------------

    def _latency(self) -> float:
        return self.family.latency_seconds * (0.75 + 0.25 * self._random.expovariate(1.0))

    def _headers(self) -> Headers:
        return self.family.headers(self._left(), self._epoch())

    def _left(self) -> tuple[Left, ...]:
        speed = self.options.speed
        return tuple(
            replace(left, reset_seconds=left.reset_seconds / speed, window_seconds=left.window_seconds / speed)
            for left in self.account.left(self.now)
        )

    def _told(self, verdict: Verdict) -> Verdict:
        return replace(verdict, wait_seconds=verdict.wait_seconds / self.options.speed)


def _api(path: str) -> answers.Api | None:
    for end, api in APIS.items():
        if path.endswith(end):
            return api
    return None


def _error(message: str) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None}}


async def _body(receive: Receive, most: int) -> bytes | None:
    """None: too long; the rest is thrown away unread. A client that left sent what it sent."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _start(status: int, headers: Headers) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}


async def _reply(send: Send, status: int, body: Any, headers: Headers | None = None) -> None:
    """`body`: text as it is, anything else as JSON."""
    content = body.encode() if isinstance(body, str) else orjson.dumps(body)
    media = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json; charset=utf-8"
    head = {"content-type": media, "content-length": str(len(content)), **(headers or {})}
    await send(_start(status, head))
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _lifespan(receive: Receive, send: Send) -> None:
    while (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
