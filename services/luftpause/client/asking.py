"""How is luftpause asked over HTTP, from a thread or from an event loop?"""

import logging
from typing import Final

import httpx

from luftpause.client import words
from luftpause.client.settings import Settings
from luftpause.client.words import Away, Question, Reply

CONNECT_SECONDS: Final = 2.0
CALLER: Final = "x-luftpause-caller"
NO_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # each question may wait long
CLOSED: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)

log = logging.getLogger("luftpause.client")


class Outage:
    """Says once that luftpause is away, and once that it is back."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_away = False

    def heard(self, answer: Reply | Away) -> None:
        away = isinstance(answer, Away)
        if away == self._is_away:
            return
        self._is_away = away
        settings = self._settings
        if isinstance(answer, Away):
            then = "go out ungoverned" if settings.when_away == "send" else "wait for it"
            log.warning("luftpause at %s is away (%s): calls to %s %s", settings.url, answer.reason, settings.target, then)
        else:
            log.warning("luftpause at %s is back", settings.url)


class Address:
    """Where questions go, and what each of them holds: nothing of the calls that it is about."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._urls: dict[str, httpx.URL] = {}
        self._headers = [("content-type", "application/json")]
        if settings.token:
            self._headers.append(("authorization", f"Bearer {settings.token}"))
        self.checks = settings.url.startswith("https:")  # certificates, which take a while to load, are needed only there

    def request(self, question: Question) -> httpx.Request:
        url = self._urls.get(question.what)
        if url is None:
            url = self._urls[question.what] = httpx.URL(f"{self._settings.url}/v1/quota/{self._settings.target}/{question.what}")
        headers = [*self._headers, (CALLER, question.caller)] if question.caller else self._headers
        timeout = httpx.Timeout(question.seconds, connect=CONNECT_SECONDS).as_dict()
        return httpx.Request("POST", url, headers=headers, content=question.body, extensions={"timeout": timeout})


# Questions go by httpx's transports, since the rest of its clients takes a quarter of the time. Asked again they have the same answer, so
# one whose connection was closed meanwhile is.


class Asking:
    """From threads."""

    def __init__(self, settings: Settings, outage: Outage) -> None:
        self._address = Address(settings)
        self._outage = outage
        self._http = httpx.HTTPTransport(verify=self._address.checks, limits=NO_LIMITS)

    def ask(self, question: Question) -> Reply | Away:
        try:
            reply = self._ask(question)
        except httpx.HTTPError as error:
            reply = _away(error)
        self._outage.heard(reply)
        return reply

    def _ask(self, question: Question) -> Reply | Away:
        try:
            return self._send(question)
        except CLOSED:
            return self._send(question)

    def _send(self, question: Question) -> Reply | Away:
        answer = self._http.handle_request(self._address.request(question))
        try:
            return words.heard(answer.status_code, answer.read())
        finally:
            answer.close()

    def close(self) -> None:
        self._http.close()


class AsyncAsking:
    """From an event loop."""

    def __init__(self, settings: Settings, outage: Outage) -> None:
        self._address = Address(settings)
        self._outage = outage
        self._http = httpx.AsyncHTTPTransport(verify=self._address.checks, limits=NO_LIMITS)

    async def ask(self, question: Question) -> Reply | Away:
        try:
            reply = await self._ask(question)
        except httpx.HTTPError as error:
            reply = _away(error)
        self._outage.heard(reply)
        return reply

    async def _ask(self, question: Question) -> Reply | Away:
        try:
            return await self._send(question)
        except CLOSED:
            return await self._send(question)

    async def _send(self, question: Question) -> Reply | Away:
        answer = await self._http.handle_async_request(self._address.request(question))
        try:
            return words.heard(answer.status_code, await answer.aread())
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()


def _away(error: httpx.HTTPError) -> Away:
    return Away(str(error) or type(error).__name__)
