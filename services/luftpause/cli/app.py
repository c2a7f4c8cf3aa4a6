"""Which commands does `luftpause` have?"""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from luftpause import __version__
from luftpause.cli import bench, config_check, doctor, fakes, load_command, local_engine, parent, replay, status
from luftpause.cli.choices import Engine
from luftpause.kit.errors import ConfigError, LuftpauseError

if TYPE_CHECKING:
    from luftpause.kit.config import Config
    from luftpause.kit.config_watch import Watcher

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, context_settings={"max_content_width": 100},
    help="Keeps the state of an agent's run between harnesses and LLM inference engines.",
)  # fmt: skip
app.add_typer(config_check.app, name="config")
app.add_typer(bench.app, name="bench")

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Path of luftpause.yaml.")]
EngineOption = Annotated[Engine | None, typer.Option(help="What takes the turns: fakes, or llama.cpp with SmolLM2 (extra `local`).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
AnnounceOption = Annotated[Path | None, typer.Option(hidden=True, help="Write where it listens to this file, as JSON.")]

RecordOption = Annotated[
    Path | None, typer.Option("--record", metavar="DIR", help="Append every event of the scheduler to logs in this directory.")
]
RecordClearOption = Annotated[bool, typer.Option("--record-clear", help="Record run ids and callers as they are, not as keyed hashes.")]
FollowsOption = Annotated[bool, typer.Option("--config-follows", hidden=True, help="Wait for the file: whoever started this writes it.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def luftpause(
    *, _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False
) -> None:
    """Keeps the state of an agent's run between harnesses and LLM inference engines."""


def _run(service: Coroutine[object, object, None]) -> None:
    import uvloop

    from luftpause.kit.open_files import allow_more

    allow_more()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service)


def _prepare(path: Path | None, *, follows: bool, worker: int | None = None) -> "Config":
    from luftpause.kit import logs
    from luftpause.kit.config_file import load

    if path is not None and follows:
        parent.wait_for(path)
    config = load(path)
    logs.setup(config.log.level, worker=worker)
    return config


def _watcher(path: Path | None, config: "Config") -> "Watcher | None":
    from luftpause.kit.config_watch import Watcher

    return Watcher(path, config) if path is not None else None


@app.command()
def up(
    *,
    config: ConfigOption = None,
    engine: EngineOption = None,
    dataplane_port: Annotated[int | None, typer.Option(help="Port of the proxy; 8080 by default.", min=0, max=65_535)] = None,
    runtime_port: Annotated[int | None, typer.Option(help="Port of the MCP server; 7000 by default.", min=0, max=65_535)] = None,
    scheduler_port: Annotated[int | None, typer.Option(help="Port of the scheduler's gRPC; 5000 by default.", min=0, max=65_535)] = None,
    status_port: Annotated[int | None, typer.Option(help="Port of the scheduler's status; 5001 by default.", min=0, max=65_535)] = None,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Take any free ports instead.")] = False,
    state: Annotated[Path | None, typer.Option(help="State directory of the runtime; ./state by default.")] = None,
    record: RecordOption = None,
    record_clear: RecordClearOption = False,
    announce: AnnounceOption = None,
) -> None:
    """Run the whole stack on this machine: scheduler, dataplane, runtime, engines, tools.

    Without --config two fake engines and fake tools serve; with it the replicas and tool servers that it names. Ctrl-C stops everything.
    Exit status 1: a part ended by itself; 2: it could not start as asked.
    """
    from luftpause.cli import stack
    from luftpause.cli.up import up as run
    from luftpause.kit.config_file import load

    settings = load(config)
    watcher = _watcher(config, settings)
    ports = stack.with_ports(
        stack.with_free_ports(settings) if free_ports else settings,
        dataplane=dataplane_port, runtime=runtime_port, scheduler=scheduler_port, status=status_port,
    )  # fmt: skip
    chosen = stack.choose_engine(ports, engine, from_file=config is not None)
    stack.prepare_engine(chosen)
    settings = stack.with_recording(stack.with_state(ports, state or ports.runtime.state), record, clear=record_clear)
    raise typer.Exit(asyncio.run(run(settings, chosen, announce=announce, watcher=watcher)))


@app.command()
def demo(
    engine: EngineOption = Engine.FAKE,
    agents: Annotated[int, typer.Option(min=1, max=256, help="Sub-agents to fan out.")] = 8,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the logs of all services.")] = False,
) -> None:
    """Start everything on free ports, fan sub-agents out over MCP, show what they did, stop everything.

    Exit status 0: all sub-agents completed; 1: some did not; 2: it could not start, or a part ended by itself.
    """
    from luftpause.cli import stack
    from luftpause.cli.demo import demo as run

    stack.prepare_engine(engine)
    raise typer.Exit(asyncio.run(run(engine or Engine.FAKE, agents, as_json=as_json, verbose=verbose)))


@app.command()
def scheduler(
    config: ConfigOption = None,
    record: RecordOption = None,
    record_clear: RecordClearOption = False,
    announce: AnnounceOption = None,
    config_follows: FollowsOption = False,
) -> None:
    """Run the scheduler: gRPC for dataplanes, HTTP for status."""
    from luftpause.cli.stack import with_recording
    from luftpause.scheduler.app import serve

    read = _prepare(config, follows=config_follows)
    settings = with_recording(read, record, clear=record_clear)
    _run(serve(settings, announce=announce, watcher=_watcher(config, read)))


@app.command()
def dataplane(
    *,
    config: ConfigOption = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve the port; each is a dataplane of its own.")] = 1,
    with_scheduler: Annotated[bool, typer.Option("--with-scheduler", help="Run the scheduler in this process too.")] = False,
    announce: AnnounceOption = None,
    config_follows: FollowsOption = False,
    worker: Annotated[str, typer.Option(hidden=True, help="Which worker of how many this is, as in 0/4.")] = "",
) -> None:
    """Run the dataplane: the OpenAI-compatible streaming proxy.

    With --with-scheduler one process is enough: the scheduler listens too, so that further dataplanes may join.
    """
    if with_scheduler and (workers > 1 or worker):
        raise ConfigError(
            "--with-scheduler is one process; with --workers the scheduler needs its own: `luftpause scheduler`, and dataplane.scheduler "
            "in the configuration"
        )
    number, _, count = worker.partition("/")
    read = _prepare(config, follows=config_follows, worker=int(number) if number else None)
    if workers > 1:
        from luftpause.cli.workers import run as run_workers

        asyncio.run(run_workers(read, workers, announce=announce))
        return
    if with_scheduler:
        from luftpause.cli.one_process import run as run_both

        _run(run_both(read, announce=announce, watcher=_watcher(config, read)))
        return
    from luftpause.dataplane.app import serve
    from luftpause.dataplane.workers import Worker

    one = Worker(int(number), int(count), announce.parent) if number and announce is not None else None
    _run(serve(read, announce=announce, worker=one))


@app.command()
def runtime(config: ConfigOption = None, announce: AnnounceOption = None, config_follows: FollowsOption = False) -> None:
    """Run the runtime: the MCP server with durable sub-agents."""
    from luftpause.runtime.app import serve

    _run(serve(_prepare(config, follows=config_follows), announce=announce))


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


for each in (doctor, fakes, load_command, local_engine, replay, status):
    each.register(app)


def main() -> None:
    """Entry point: errors that a person can mend are printed without a traceback, exit code 2."""
    parent.watch()
    try:
        app()
    except LuftpauseError as error:
        print(f"luftpause: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None
