"""Which address do a replica's paths hang on, however its base URL was written, and which host does a request name?"""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from luftpause.kit.errors import ConfigError

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


def host_of(header: str) -> str:
    """The host of a Host header, lower case, without port; IPv6 keeps its brackets. One that is no host and port comes back whole."""
    host = header.strip().lower()
    found = _HOST.fullmatch(host)
    return found[1] if found else host


def _mistake(parts: SplitResult) -> str:
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    if not parts.hostname:
        return "names no host; write it as http://host:port"
    if parts.port == 0:
        return "port 0 can't be connected to"
    if parts.username is not None or parts.password is not None:
        return "holds credentials; name the variable with the key in api_key_env instead"
    if parts.query or parts.fragment:
        return "holds a query or fragment; a base URL ends with its path"
    return ""


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    scheme, found, rest = url.partition("://")
    host = rest.rpartition("@")[2]
    return f"{scheme}{found}{host}"
