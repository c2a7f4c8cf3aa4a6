"""How does an agent that calls APIs itself share their quotas with others? By one line: the transport of its httpx client."""

from luftpause.client.errors import LuftpauseAwayError
from luftpause.client.transport import QuotaTransport

__all__ = ["LuftpauseAwayError", "QuotaTransport"]
