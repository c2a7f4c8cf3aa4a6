"""How does the runtime start, serve and stop?"""

from pathlib import Path

from luftpause.kit.config import Config


async def serve(config: Config, *, announce: Path | None = None) -> None:
    """Run the runtime until SIGTERM or SIGINT; writes where it listens to `announce`."""
    raise NotImplementedError
