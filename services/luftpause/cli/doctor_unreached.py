"""Why does an address give no answer, and what helps?"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import httpx

from luftpause.kit.auth import is_loopback

CONTAINER_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
CONNECT_SECONDS_MAX: Final = 1.0
NOTHING_LISTENS: Final = "nothing listens there"
NO_WAY: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
# nginx, Apache; Go; Tomcat. An address in an error's text is no sign: APIs refer to pages of theirs.
_WANTS_TLS: Final = re.compile(rb"plain http|http request (?:was sent )?to (?:an )?https|requires tls")
PLAIN: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})


def why(error: Exception, url: str) -> tuple[str, str]:
    """What is the matter, and how it is mended (empty: nothing better than the general advice), of a request for `url` that failed."""
    for cause in _causes(error):
        if found := _known(cause, url):
            return found
    if isinstance(error, httpx.ConnectError):
        return NOTHING_LISTENS if "attempts failed" in str(error) else (str(error) or "no connection"), ""
    tls = "is it an engine's address? If it speaks TLS, write https:// in its url; else look at its log, and correct its url"
    return f"no HTTP answer ({type(error).__name__}: {error})", tls if url.startswith("http://") else ""


def _known(cause: BaseException, url: str) -> tuple[str, str] | None:
    host = urlsplit(url).hostname or ""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {cause.verify_message}", _of_certificate(cause.verify_message, host)
        case ssl.SSLError() if cause.reason in PLAIN:
            return "it does not speak TLS", "write http:// in its url, or is this another program's port?"
        case socket.gaierror():
            where = "a container's name is known in its network only, and host.docker.internal in containers only"
            return f"the name {host} is not known here", f"correct the host in its url; {where}"
        case ConnectionRefusedError():
            return _refused(url)
        case OSError() if cause.errno in NO_WAY:
            return f"no way leads there ({cause.strerror})", "is that machine up, and does a VPN or a firewall stand between?"
        case _:
            return None


def in_container() -> bool:
    return any(mark.exists() for mark in CONTAINER_MARKS)


def wants_tls(status: int, body: bytes, url: str) -> bool:
    """As servers say it that got plain HTTP on a port of TLS."""
    return status == 400 and url.startswith("http://") and _WANTS_TLS.search(body[:1000].lower()) is not None


def _refused(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if not is_loopback(host):
        return NOTHING_LISTENS, ""
    other = "::1" if ":" not in host else "127.0.0.1"
    if _listens(other, port):
        shown = f"[{other}]" if ":" in other else other
        return f"{NOTHING_LISTENS}, but something does at {shown}:{port}", f"write {parts.scheme}://{shown}:{port} in its url"
    if in_container():
        return (
            f"{NOTHING_LISTENS}; here {host} is this container itself",
            "start the engine if it belongs here; else write the name of its container, or host.docker.internal if it runs on the host",
        )
    return NOTHING_LISTENS, ""


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECT_SECONDS_MAX).close()
    except OSError:
        return False
    return True


def _of_certificate(message: str, host: str) -> str:
    if "expired" in message or "not yet valid" in message:
        return "renew it, or set this machine's clock"
    if "mismatch" in message:
        return f"write the name that stands in it instead of {host}, or have one made for {host}"
    return "name a file with its authority's certificate (its own, if it signed itself) in SSL_CERT_FILE where scheduler and dataplane run"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what lies under it, the deepest first."""
    if error is None:
        return
    yield from _causes(error.__cause__ or error.__context__)
    if isinstance(error, BaseExceptionGroup):
        for each in cast("tuple[BaseException, ...]", error.exceptions):
            yield from _causes(each)
    yield error
