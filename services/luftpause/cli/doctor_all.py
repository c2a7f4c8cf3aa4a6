"""In which order is an installation looked at?"""

import asyncio
import os
from pathlib import Path

from luftpause.cli import doctor_local, doctor_replicas, doctor_services
from luftpause.cli.config_notes import notes
from luftpause.cli.doctor_findings import Finding, fault, note, ok
from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from luftpause.kit.errors import ConfigError
from luftpause.scheduler import engine_http


async def examine(path: Path | None) -> list[Finding]:
    """All of it; of a configuration that can't be read, that alone."""
    try:
        config = load(path)
    except ConfigError as error:
        where = path or Path("luftpause.yaml")
        mend = f"mend it in {where}; `luftpause config check` looks again"
        return [fault("configuration", mistake, mend) for mistake in error.message.splitlines()]
    return [
        ok("configuration", str(path) if path else "the defaults, as no --config is given"),
        *_not_looked_at(path),
        *(note("configuration", each) for each in notes(config, os.environ)),
        *doctor_local.environment(config, os.environ),
        *await _asked(config),
    ]


def _not_looked_at(path: Path | None) -> list[Finding]:
    usual = Path("luftpause.yaml")
    if path is not None or not usual.is_file():
        return []
    return [note("configuration", f"{usual} in this folder is not looked at", f"`luftpause doctor --config {usual}` does so")]


async def _asked(config: Config) -> list[Finding]:
    async with engine_http.client() as client:
        (services, running), replicas, tools = await asyncio.gather(
            doctor_services.examine(config, client),
            doctor_replicas.examine(config, client),
            doctor_services.tool_servers(config.runtime),
        )
    return [*doctor_local.state(config.runtime, runs="runtime" in running), *services, *replicas, *tools]
