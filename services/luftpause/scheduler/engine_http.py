"""What does one question to a replica's HTTP side bring: an answer, a refused connection, or nothing in time?"""

import asyncio
import functools
import ssl
from typing import Final, Literal
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from luftpause.scheduler.core.events import ProbeOutcome

CONNECT_PART: Final = 0.9


class Answer(Struct, frozen=True):
    """`status` 0: there was no answer, and `outcome` says how. `problem`: what a person should read; empty: all is well."""

    outcome: ProbeOutcome
    status: int = 0
    body: bytes = b""
    problem: str = ""


def client() -> httpx.AsyncClient:
    """Proxies of the environment are for hosts far away, never for engines; a redirect could lead anywhere with the key."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30)
    return httpx.AsyncClient(verify=tls(), trust_env=False, follow_redirects=False, limits=limits, headers={"user-agent": "luftpause"})


@functools.cache
def tls() -> ssl.SSLContext:
    """Trusts whom the system trusts, or SSL_CERT_FILE and SSL_CERT_DIR, as the dataplane does."""
    return ssl.create_default_context()


async def ask(
    http: httpx.AsyncClient,
    url: str,
    *,
    key: str,
    seconds: float,
    bytes_max: int,
    connect_seconds: float | None = None,
    method: Literal["GET", "POST"] = "GET",
) -> Answer:
    """Ask for `url` within `seconds` in all; a longer answer than `bytes_max` (unpacked) is a problem, not an outage.

    A POST has an empty body that claims to be JSON.
    """
    # A connection that does not come about is given up a little before the rest: the library closes its socket only then.
    timeout = httpx.Timeout(seconds, connect=min(seconds, connect_seconds or seconds) * CONNECT_PART)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if method == "POST":
        headers |= {"content-type": "application/json", "content-length": "0"}
    try:
        async with asyncio.timeout(seconds), http.stream(method, url, headers=headers, timeout=timeout) as response:
            body = await _body(response, bytes_max)
            status = response.status_code
    except TimeoutError:
        return Answer(ProbeOutcome.MISSED, problem=f"no answer within {seconds:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return _failure(error, seconds)
    outcome = ProbeOutcome.MISSED if status >= 500 else ProbeOutcome.OK
    if body is None:
        return Answer(outcome, status, problem=f"the answer is longer than {bytes_max} bytes")
    return Answer(outcome, status, body, problem="" if 200 <= status < 300 else f"answers {status}")


async def reach(url: str, *, seconds: float, handshake: bool = True) -> Answer:
    """Open a connection and close it: for replicas that have no health check. Without `handshake` https is taken at its word."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(seconds):
            _reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls() if secure and handshake else None)
    except TimeoutError:
        return Answer(ProbeOutcome.MISSED, problem=f"no connection within {seconds:g} s")
    except OSError as error:
        return _failure(error, seconds)
    writer.transport.abort() if secure and handshake else writer.close()  # a peer may never answer the closing of TLS
    return Answer(ProbeOutcome.OK)


async def _body(response: httpx.Response, bytes_max: int) -> bytes | None:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > bytes_max:
            return None
    return bytes(body)


def _failure(error: Exception, seconds: float) -> Answer:
    if isinstance(error, httpx.TimeoutException):
        return Answer(ProbeOutcome.MISSED, problem=f"no answer within {seconds:g} s")
    if _refused(error):
        return Answer(ProbeOutcome.REFUSED, problem="nobody listens there")
    if distrust := _distrust(error):
        return Answer(ProbeOutcome.MISSED, problem=distrust)
    return Answer(ProbeOutcome.MISSED, problem=str(error) or type(error).__name__)


def _distrust(error: BaseException | None) -> str:
    """Why the peer's certificate was not accepted; empty: that is not what failed."""
    match error:
        case None:
            return ""
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message}); name a file with its CA in SSL_CERT_FILE"
        case _:
            return _distrust(error.__cause__ or error.__context__)


def _refused(error: BaseException | None) -> bool:
    """Did every address refuse? The cause lies under the exceptions of httpx, httpcore and anyio."""
    match error:
        case None:
            return False
        case ConnectionRefusedError():
            return True
        case BaseExceptionGroup():
            members: tuple[BaseException, ...] = error.exceptions
            return all(_refused(member) for member in members)
        case _:
            return _refused(error.__cause__ or error.__context__)
