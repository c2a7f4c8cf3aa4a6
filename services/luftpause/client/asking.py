"""How is luftpause asked over HTTP, from a thread or from an event loop?"""

import logging
from typing import Final

import httpx

from luftpause.client import words
from luftpause.client.settings import Settings
from luftpause.client.words import Away, Question, Reply

CONNECT_SECONDS: Final = 2.0
CALLER: Final = "x-luftpause-caller"

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


def own_headers(settings: Settings) -> dict[str, str]:
    """What every question holds; nothing of the calls that it is about."""
    headers = {"content-type": "application/json"}
    if settings.token:
        headers["authorization"] = f"Bearer {settings.token}"
    return headers


class Asking:
    """From threads."""

    def __init__(self, settings: Settings, outage: Outage) -> None:
        self._settings = settings
        self._outage = outage
        # Proxies of the environment are not for luftpause. Certificates are loaded, which takes a while, only where they are looked at.
        self._http = httpx.Client(headers=own_headers(settings), trust_env=False, verify=settings.url.startswith("https:"))

    def ask(self, question: Question) -> Reply | Away:
        try:
            answer = self._http.post(
                _url(self._settings, question), content=question.body, headers=_whose(question), timeout=_timeout(question)
            )
            reply = words.heard(answer.status_code, answer.content)
        except httpx.HTTPError as error:
            reply = _away(error)
        self._outage.heard(reply)
        return reply

    def close(self) -> None:
        self._http.close()


class AsyncAsking:
    """From an event loop."""

    def __init__(self, settings: Settings, outage: Outage) -> None:
        self._settings = settings
        self._outage = outage
        self._http = httpx.AsyncClient(headers=own_headers(settings), trust_env=False, verify=settings.url.startswith("https:"))

    async def ask(self, question: Question) -> Reply | Away:
        try:
            answer = await self._http.post(
                _url(self._settings, question), content=question.body, headers=_whose(question), timeout=_timeout(question)
            )
            reply = words.heard(answer.status_code, answer.content)
        except httpx.HTTPError as error:
            reply = _away(error)
        self._outage.heard(reply)
        return reply

    async def aclose(self) -> None:
        await self._http.aclose()


def _url(settings: Settings, question: Question) -> str:
    return f"{settings.url}/v1/quota/{settings.target}/{question.what}"


def _whose(question: Question) -> dict[str, str] | None:
    return {CALLER: question.caller} if question.caller else None


def _timeout(question: Question) -> httpx.Timeout:
    return httpx.Timeout(question.seconds, connect=CONNECT_SECONDS)


def _away(error: httpx.HTTPError) -> Away:
    return Away(str(error) or type(error).__name__)
