"""Which names of HTTP headers mean the same to a server that reads them loosely?

CGI, WSGI and PHP make one variable of `x-a-b`, `X_A_B` and `x.a.b` (RFC 3875, 4.1.18): whoever keeps one of them back keeps back all.
"""

import re
from typing import Final

OURS: Final = b"x-luftpause-"
_FOLD: Final = re.sub(rb"[^a-z0-9]", b"-", bytes(range(256)).lower())


def folded(name: bytes) -> bytes:
    """One spelling for all that a server may take for the same name: lower case, dashes for whatever is neither letter nor digit."""
    return name.translate(_FOLD)


def is_ours(name: bytes) -> bool:
    """Is it luftpause's own, which neither goes on to others nor is believed of them?"""
    return folded(name).startswith(OURS)
