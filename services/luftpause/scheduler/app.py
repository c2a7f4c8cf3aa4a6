"""How does the scheduler start, serve and stop?"""

from pathlib import Path

from luftpause.kit.config import Config


async def serve(config: Config, *, announce: Path | None = None) -> None:
    """Run the scheduler until SIGTERM or SIGINT; writes where it listens to `announce`."""
    raise NotImplementedError
