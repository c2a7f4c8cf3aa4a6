"""How does a benchmark whose options are typer's give an exit status?"""

from collections.abc import Sequence

import typer


def exit_status(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """2 for arguments that it doesn't know; it has said so then."""
    try:
        app(args=list(arguments), prog_name=f"luftpause bench {name}")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
