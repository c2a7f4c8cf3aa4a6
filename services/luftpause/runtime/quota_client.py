"""How does the runtime ask for quotas of other APIs? Through the dataplane's `/v1/quota/…`, for whoever called its tool."""

from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import quote

import httpx

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.json_object import json_object
from luftpause.runtime.ports import Json

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0  # beside what a question may wait


class DataplaneQuotas:
    """An async context manager. `token`: what the dataplane is shown; empty: nothing."""

    def __init__(self, config: RuntimeConfig, transport: httpx.AsyncBaseTransport | None = None, *, token: str = "") -> None:
        self._url = config.dataplane.rstrip("/").removesuffix("/v1")
        self._http = httpx.AsyncClient(
            transport=transport,
            headers={"authorization": f"Bearer {token}"} if token else None,
            trust_env=False,  # proxies of the environment are not for local services
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),  # each question may wait
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def ask(self, what: str, target: str, body: Json, caller: str, wait_seconds: float = 0.0) -> tuple[int, Json]:
        """
        What `/v1/quota/{target}/{what}` answers: 200 and its JSON, or 429 and the `error` in it.

        Raises LuftpauseError: `dataplane_unreachable`, or the dataplane's own error.
        """
        headers = [(b"x-luftpause-caller", caller.encode())] if caller else []
        try:
            answer = await self._http.post(
                f"{self._url}/v1/quota/{quote(target, safe='')}/{what}",
                json=body,
                headers=headers,
                timeout=httpx.Timeout(wait_seconds + ANSWER_SECONDS, connect=CONNECT_SECONDS),
            )
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            message = f"the dataplane at {self._url} can't be asked for quotas ({why}); see that it is up, then ask again"
            raise LuftpauseError(message, code="dataplane_unreachable", status=502) from error
        said = json_object(answer.content)
        told = said.get("error")
        error = cast("Json", told) if isinstance(told, dict) else {}
        if answer.status_code == 200:
            return 200, said
        if answer.status_code == 429 and "retryMs" in error:
            return 429, error
        message = str(error.get("message", f"the dataplane at {self._url} answered {answer.status_code}"))
        raise LuftpauseError(message, code=str(error.get("code", "quota")), status=answer.status_code)
