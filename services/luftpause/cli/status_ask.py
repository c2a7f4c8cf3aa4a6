"""What do a scheduler and a runtime answer to who asks how they are?"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson
from msgspec import Struct

from luftpause.cli import tokens
from luftpause.kit.auth import CLUSTER_TOKEN, TOKEN, from_environment, is_loopback
from luftpause.kit.errors import LuftpauseError

SECONDS_MAX: Final = 10.0
SAMPLES_ONLY: Final = {"runs": "0"}

Json = dict[str, Any]


class Seen(Struct, frozen=True):
    """`samples`: rows as in `Sample` of the scheduler's timeline, the newest last; empty where it has none. `runtime` None: not asked."""

    status: Json
    samples: list[list[int]]
    runtime: Json | None = None


class UnreadableError(LuftpauseError):
    """The status can't be had; `gone`: nothing answers, which may change by itself."""

    def __init__(self, message: str, *, gone: bool) -> None:
        super().__init__(message, code="status_unreadable")
        self.gone = gone


class Asker:
    """Asks `scheduler`, and `runtime` where it is named; each is shown the token of its own variable, or none. To be closed."""

    def __init__(self, scheduler: str, runtime: str | None, *, token_env: str | None, runtime_token_env: str | None) -> None:
        """Raises LuftpauseError where an address is none, or the variable that was named is not set."""
        self._scheduler = _base(scheduler, "--url")
        self._runtime = _base(runtime, "--runtime") if runtime is not None else None
        self._token = _cluster_token(self._scheduler, token_env)
        self._runtime_token = tokens.token_for(self._runtime, runtime_token_env) if self._runtime else ""
        self._client = httpx.Client(trust_env=False, timeout=SECONDS_MAX)

    def close(self) -> None:
        self._client.close()

    def ask(self) -> Seen:
        """Raises UnreadableError."""
        status = self._get(f"{self._scheduler}/status", self._token, "--token-env")
        if "scheduler_epoch" not in status:
            raise UnreadableError(f"{self._scheduler} is not a scheduler; its status is at http://HOST:5001", gone=False)
        timeline = self._get(f"{self._scheduler}/timeline", self._token, "--token-env", SAMPLES_ONLY)
        runtime = self._get(f"{self._runtime}/status", self._runtime_token, "--runtime-token-env") if self._runtime else None
        if runtime is not None and "runs" not in runtime:
            raise UnreadableError(f"{self._runtime} is not a runtime; it listens on http://HOST:7000", gone=False)
        return Seen(status, timeline.get("samples", []), runtime)

    def _get(self, url: str, token: str, option: str, parameters: Mapping[str, str] | None = None) -> Json:
        try:
            answer = self._client.get(url, headers=tokens.headers(token), params=parameters)
        except httpx.TimeoutException:
            raise UnreadableError(f"{url} did not answer within {SECONDS_MAX:g} s", gone=True) from None
        except httpx.HTTPError as error:
            mend = "is it running (`luftpause up`), and is this its address?"
            raise UnreadableError(f"nothing answers at {url} ({type(error).__name__}); {mend}", gone=True) from None
        if answer.status_code == 401:
            names = f"{CLUSTER_TOKEN} or {TOKEN}" if option == "--token-env" else TOKEN
            mend = f"set {names}, or name another variable with {option}"
            raise UnreadableError(f"{url} wants {'another' if token else 'a'} token: {mend}", gone=False)
        return _parsed(url, answer)


def _parsed(url: str, answer: httpx.Response) -> Json:
    try:
        body: object = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise UnreadableError(f"{url} answered {answer.status_code} without JSON: it is not luftpause's", gone=False)
    if not answer.is_success:
        raise UnreadableError(f"{url} answered {answer.status_code}: {_said(body)}", gone=answer.status_code >= 500)  # pyright: ignore[reportUnknownArgumentType]
    return body  # pyright: ignore[reportUnknownVariableType]


def _said(body: Json) -> str:
    error = body.get("error")
    return str(error.get("message", error)) if isinstance(error, dict) else "no reason given"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _base(url: str, option: str) -> str:
    """Without a trailing slash, or `/status` or `/mcp` after the host. Raises LuftpauseError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise LuftpauseError(f"{option} {url!r} is not an address; name it like http://127.0.0.1:5001", code="bad_argument", status=400)
    return url.rstrip("/").removesuffix("/status").removesuffix("/mcp")


def _cluster_token(url: str, variable: str | None) -> str:
    """As `tokens.token_for`, with the variable of the scheduler's own token first."""
    if variable is None and is_loopback(urlsplit(url).hostname or ""):
        return from_environment(CLUSTER_TOKEN) or from_environment(TOKEN)
    return tokens.token_for(url, variable)
