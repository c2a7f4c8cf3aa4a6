"""What can `luftpause status` be told?"""

from typing import Annotated, Final

import typer

URL: Final = "http://127.0.0.1:5001"


def register(app: typer.Typer) -> None:
    app.command("status")(status)


def status(
    *,
    url: Annotated[str, typer.Option(help="Where the scheduler's status is.")] = URL,
    runtime: Annotated[str | None, typer.Option(help="A runtime, whose runs are shown too: http://127.0.0.1:7000.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once; so it is where the output is not a terminal.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the scheduler's status once, as it is; with --runtime the runtime's under `runtime`.")
    ] = False,
    interval_s: Annotated[float, typer.Option("--interval-s", min=0.2, max=3600, help="Ask again after so many seconds.")] = 2.0,
    token_env: Annotated[
        str | None,
        typer.Option(
            help="Variable with the scheduler's token; not given: LUFTPAUSE_CLUSTER_TOKEN or LUFTPAUSE_TOKEN, shown to this machine only."
        ),
    ] = None,
    runtime_token_env: Annotated[
        str | None, typer.Option(help="Variable with the runtime's token; not given: LUFTPAUSE_TOKEN, shown to this machine only.")
    ] = None,
) -> None:
    """Show replicas, held turns, callers and runs, live.

    Ctrl-C ends it. Exit status 0: all is well, or it was watched; 1: something needs attention (shown first); 2: it could not be read.
    """
    from luftpause.cli.status_show import show

    raise typer.Exit(
        show(
            url, runtime, once=once, as_json=as_json, interval_seconds=interval_s, token_env=token_env, runtime_token_env=runtime_token_env
        )
    )
