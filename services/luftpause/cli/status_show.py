"""How does a person see on a terminal what luftpause does right now, and a script whether it is well?"""

import contextlib
import time

import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from luftpause.cli.status_ask import Asker, Seen, UnreadableError
from luftpause.cli.status_view import problems, view


def show(
    url: str,
    runtime: str | None,
    *,
    once: bool,
    as_json: bool,
    interval_seconds: float,
    token_env: str | None,
    runtime_token_env: str | None,
) -> int:
    """Show it, once or until Ctrl-C; returns the exit status: 1 where something needs attention. Raises LuftpauseError."""
    console = Console()
    asker = Asker(url, runtime, token_env=token_env, runtime_token_env=runtime_token_env)
    with contextlib.closing(asker):
        seen = asker.ask()
        if as_json:
            print(orjson.dumps(_document(seen), option=orjson.OPT_INDENT_2).decode())
        elif once or not console.is_terminal:
            console.print(view(seen, console.width, ascii_only=console.options.ascii_only))
        else:
            _watch(console, asker, seen, interval_seconds)
            return 0
    return 1 if problems(seen.status) else 0


def _document(seen: Seen) -> dict[str, object]:
    return seen.status if seen.runtime is None else {**seen.status, "runtime": seen.runtime}


def _watch(console: Console, asker: Asker, seen: Seen, interval_seconds: float) -> None:
    """Until Ctrl-C. What was seen last stays while nothing answers."""
    lost_at: float | None = None
    why = ""
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            shown = view(seen, console.width, ascii_only=console.options.ascii_only)
            live.update(shown if lost_at is None else _lost(shown, why, time.monotonic() - lost_at), refresh=True)
            time.sleep(interval_seconds)
            try:
                seen, lost_at = asker.ask(), None
            except UnreadableError as error:
                if not error.gone:
                    raise
                lost_at, why = lost_at if lost_at is not None else time.monotonic(), error.message


def _lost(shown: RenderableType, why: str, seconds: float) -> RenderableType:
    return Group(Panel(Text(f"lost for {seconds:.0f} s, asking again: {why}"), style="bold red"), shown)
