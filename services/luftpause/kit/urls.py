"""Which address do a replica's paths hang on, however its base URL was written, and which host does a request name?"""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from luftpause.kit.errors import ConfigError

_BOUND: Final = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?", re.ASCII)
_STRANGE: Final = re.compile(r"[\s$<>{}\"\\^`|…*]")
_PAGES: Final = re.compile(r".*/chat/completions|.*/v1/(?:completions|responses|messages|embeddings|models)")
_NAMED: Final = re.compile(r"[\w.-]+|\[[0-9a-f:.]+(%[\w.-]+)?\]", re.ASCII)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*?#@]+")
_VERSION: Final = re.compile(r"/v[0-9]+(?:(?:alpha|beta)[0-9]*)?(?:/openai)?$")
_HOST: Final = re.compile(r"(\[[^\]@]*\]|[^:@\[\]]*)(?::[0-9]*)?")


def base_url(url: str) -> str:
    """`url` without trailing slashes and without `/v1` at its end; a path before that stays.

    Raises ConfigError where the URL can't be a base: no host, a bad port, a query, a fragment, or credentials in it.
    """
    try:
        parts = urlsplit(url.strip())
        mistake = _mistake(parts)
    except ValueError as error:  # an unclosed bracket, a port that is no number
        raise ConfigError(f"url {_shown(url)!r}: {error}") from error
    if mistake:
        raise ConfigError(f"url {_shown(url)!r}: {mistake}")
    path = parts.path.rstrip("/")
    while path.endswith("/v1"):
        path = path.removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def listening_host(host: str) -> str:
    """`host`, if a socket can be bound to something of that form: a name or an address alone. Raises ConfigError."""
    if not host:
        raise ConfigError("is empty; write 127.0.0.1 for this machine alone, or 0.0.0.0 for all that can reach it")
    if host == "*":
        raise ConfigError("`*` is no address; write 0.0.0.0 (or `::` with IPv6) for all that can reach this machine")
    if not _BOUND.fullmatch(host):
        raise ConfigError(f"{host!r} is no host; write a name or an address alone, without http://, port or brackets")
    return host


def served_host(host: str) -> str:
    """As a Host header names it, without its port; `*` stands for all. Raises ConfigError."""
    found = host_of(f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host)
    if found != "*" and not _NAMED.fullmatch(found):
        raise ConfigError(f"{host!r} is no host; write a name or an address alone, without http:// or path, or `*` for all")
    return found


def page_origin(origin: str) -> str:
    """As browsers write it. Raises ConfigError."""
    found = origin.strip().rstrip("/").lower()
    if found == "*":
        raise ConfigError("`*` would let every web page call; write each origin, as in https://app.example:8443")
    if found != "null" and not _ORIGIN.fullmatch(found):
        raise ConfigError(f"{origin!r} is no origin; write scheme, host and port alone, as in http://localhost:3000")
    return found


def api_at(base: str, path: str) -> str:
    """Where `path`, which begins with /v1, is below a base URL or the path of one.

    A base that ends with another version (`/api/v4`, `/v1beta/openai`) has that in the place of /v1.
    """
    return base + (path.removeprefix("/v1") if has_version(base) else path)


def has_version(base: str) -> bool:
    return _VERSION.search(base) is not None


def host_of(header: str) -> str:
    """The host of a Host header, lower case, without port; IPv6 keeps its brackets. One that is no host and port comes back whole."""
    host = header.strip().lower()
    found = _HOST.fullmatch(host)
    return found[1] if found else host


def _mistake(parts: SplitResult) -> str:
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    return _mistake_of_host(parts) or _mistake_of_path(parts)


def _mistake_of_host(parts: SplitResult) -> str:
    if not parts.hostname:
        return "names no host; write it as http://host:port"
    if found := _STRANGE.search(parts.netloc.rpartition("@")[2]):
        return f"{found[0]!r} can't stand in a host; is something not filled in? Variables are written ${{NAME}}"
    if parts.port == 0:
        return "port 0 can't be connected to"
    if parts.username is not None or parts.password is not None:
        return "holds credentials; name the variable with the key in api_key_env instead"
    return ""


def _mistake_of_path(parts: SplitResult) -> str:
    if _PAGES.fullmatch(parts.path.rstrip("/")):
        return "is the address of one API; a base URL ends before that, with or without /v1"
    if parts.query or parts.fragment:
        return "holds a query or fragment; a base URL ends with its path"
    return ""


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    scheme, found, rest = url.partition("://")
    host = rest.rpartition("@")[2]
    return f"{scheme}{found}{host}"
