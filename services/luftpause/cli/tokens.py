"""Which token does a command show, and to whom?"""

import os
from urllib.parse import urlsplit

from luftpause.kit.auth import TOKEN, from_environment, is_loopback
from luftpause.kit.errors import ConfigError


def token_for(url: str, variable: str | None) -> str:
    """
    The token of the variable that was named; else LUFTPAUSE_TOKEN where `url` is on this machine, for it is nobody else's business.

    Empty: none is shown. Raises ConfigError where the variable that was named is not set.
    """
    if variable is None:
        return from_environment(TOKEN) if is_loopback(urlsplit(url).hostname or "") else ""
    if not os.environ.get(variable, "").strip():
        raise ConfigError(f"--token-env: the environment variable {variable} is not set")
    return from_environment(variable)


def headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}
