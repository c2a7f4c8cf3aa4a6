"""Which commands does `luftpause` have?"""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer

from luftpause import __version__
from luftpause.cli import fakes, local_engine
from luftpause.kit import logs
from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from luftpause.kit.errors import LuftpauseError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True)

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Path of luftpause.yaml.")]
AnnounceOption = Annotated[Path | None, typer.Option(hidden=True, help="Write where it listens to this file, as JSON.")]


def _run(service: Coroutine[object, object, None]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service)


def _prepare(path: Path | None) -> Config:
    config = load(path)
    logs.setup(config.log.level)
    return config


@app.command()
def scheduler(config: ConfigOption = None, announce: AnnounceOption = None) -> None:
    """Run the scheduler: gRPC for dataplanes, HTTP for status."""
    from luftpause.scheduler.app import serve

    _run(serve(_prepare(config), announce=announce))


@app.command()
def dataplane(config: ConfigOption = None, announce: AnnounceOption = None) -> None:
    """Run the dataplane: the OpenAI-compatible streaming proxy."""
    from luftpause.dataplane.app import serve

    _run(serve(_prepare(config), announce=announce))


@app.command()
def runtime(config: ConfigOption = None, announce: AnnounceOption = None) -> None:
    """Run the runtime: the MCP server with durable sub-agents."""
    from luftpause.runtime.app import serve

    _run(serve(_prepare(config), announce=announce))


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


for each in (fakes, local_engine):
    each.register(app)


def main() -> None:
    """Entry point: errors that a person can mend are printed without a traceback, exit code 2."""
    try:
        app()
    except LuftpauseError as error:
        print(f"luftpause: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None
