"""What does the caller of an httpx client get in the end?"""

from typing import Final

import httpx

from luftpause.client.errors import LuftpauseAwayError, LuftpauseSetupError
from luftpause.client.flow import Headers, Missing, Own
from luftpause.client.settings import EXTENSION, Settings
from luftpause.client.words import Lease, Mistaken
from luftpause.kit.quota_evidence import says_when

# The provider has not seen the call.
UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
REFUSED_BY: Final = "x-luftpause-refused"  # on answers that no provider gave


def readvised(response: httpx.Response, when: Headers) -> None:
    """The provider's refusal, with our word on when to come again."""
    kept = [(name, value) for name, value in response.headers.raw if not says_when(name.decode("latin-1"))]
    response.headers = httpx.Headers([*kept, *((name.encode(), value.encode()) for name, value in when)])


def own(end: Own, target: str, request: httpx.Request) -> httpx.Response:
    """The governor's no, in the form of a provider's."""
    headers = [("content-type", "application/json"), (REFUSED_BY, target), *end.headers]
    return httpx.Response(end.status, headers=headers, content=end.body, request=request, extensions=told(None, 0.0, governed=True))


def missing(end: Missing, settings: Settings, request: httpx.Request) -> LuftpauseAwayError | LuftpauseSetupError:
    """What to raise for a call that luftpause could not be asked about."""
    if isinstance(end.no, Mistaken):
        return LuftpauseSetupError(f"luftpause at {settings.url} refused: {end.no.message}", request=request)
    message = (
        f"luftpause at {settings.url} can't be asked ({end.no.reason}), so the call to {settings.target} was not made; "
        "see that it runs, or let calls go out ungoverned meanwhile by when_away='send'"
    )
    return LuftpauseAwayError(message, request=request)


def told(lease: Lease | None, held_seconds: float, *, governed: bool) -> dict[str, object]:
    """Extensions of a response: whether the call was governed, how long it was held, how far load should be cut."""
    level = lease.level if lease is not None else 0
    return {EXTENSION: {"governed": governed, "held_seconds": held_seconds, "level": level}}


def replayable(request: httpx.Request) -> bool:
    """Can its body be sent again? One that is read from a file or generator can't: nothing is kept of it."""
    return isinstance(request.stream, httpx.ByteStream)
