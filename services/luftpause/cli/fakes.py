"""Which commands start the fakes?"""

from pathlib import Path
from typing import Annotated

import typer

AnnounceOption = Annotated[Path | None, typer.Option(hidden=True, help="Write where it listens to this file, as JSON.")]


def register(app: typer.Typer) -> None:
    app.command("fake-mcp")(fake_mcp)


def fake_mcp(
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on stdin and stdout instead of HTTP.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 7100,
    lookup_seconds: Annotated[float, typer.Option(min=0, help="How long `lookup` takes.")] = 1.0,
    deep_search_seconds: Annotated[float, typer.Option(min=0, help="How long `deep_search` takes.")] = 10.0,
    flaky_failures: Annotated[int, typer.Option(min=0, help="How often `flaky` fails before it works, per query.")] = 1,
    big_result_bytes: Annotated[int, typer.Option(min=1, help="Length of `big_result` where the call names none.")] = 3_000_000,
    page_size: Annotated[int, typer.Option(min=0, help="Tools per page of tools/list; 0: all.")] = 0,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line per started, finished and cancelled call.")] = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the fake MCP server: `lookup`, `deep_search`, `delete_note`, `flaky`, `big_result`, `picture`, `record`, `add`.

    Over HTTP, GET /_fake shows how often each call was started and finished; DELETE /_fake clears that.
    """
    import asyncio

    from luftpause.kit import logs
    from luftpause_fakes.mcp import McpOptions, serve_http, serve_stdio

    logs.setup()
    options = McpOptions(
        host=host,
        port=port,
        lookup_seconds=lookup_seconds,
        deep_search_seconds=deep_search_seconds,
        flaky_failures=flaky_failures,
        big_result_bytes=big_result_bytes,
        page_size=page_size,
        log=log,
    )
    asyncio.run(serve_stdio(options) if stdio else serve_http(options, announce=announce))
