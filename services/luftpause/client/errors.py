"""What goes wrong for a call before it was sent?"""

import httpx


class LuftpauseAwayError(httpx.TransportError):
    """luftpause can't be asked; the call was not made."""


class LuftpauseSetupError(httpx.TransportError):
    """luftpause does not take what it is asked: a wrong token, target or priority. The call was not made."""
