"""Which store does the configuration name, and who is this node to it?"""

import secrets
import socket

from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import ConfigError
from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.port import Store


def shared_store(config: GovernorConfig) -> Store:
    """Not connected yet. Raises ConfigError: the client for it is not installed, or the URL can't be read."""
    try:
        from luftpause.scheduler.governor.store.redis_store import RedisStore
    except ImportError as error:
        raise ConfigError("governor.store: Redis needs a client that is not installed: pip install 'luftpause[redis]'") from error
    try:
        return RedisStore(config.store)
    except ValueError as error:
        raise ConfigError(f"governor.store: {error}; give it as redis://host:port/db, rediss://… or unix:///path/to/redis.sock") from error


def node_name() -> str:
    """A name of its own for each start: leases of an earlier one are not this one's."""
    return f"{socket.gethostname()}/{secrets.token_hex(4)}"


def sharing_settings(config: GovernorConfig) -> SharingSettings:
    """As long as a lease lasts, calls that nobody knows of may be out."""
    sharing = config.sharing
    return SharingSettings(sharing.failure_mode, sharing.safe_part, sharing.chunk_calls, learning_seconds=config.lease_seconds)
