"""Writes docs/commands.md from the help of each command.

Run it with the package installed: `python tools/generate_cli_docs.py`. A test compares the file with what this would write.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from luftpause.cli.app import app

TARGET = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
HEAD = """\
# Commands

`luftpause COMMAND --help` says the same. `luftpause --install-completion` makes the shell complete commands and options (bash, zsh, fish,
PowerShell); `--show-completion` only prints what that would add.

Exit status 2 is a mistake in what was asked, with a message that names it, or a start that did not come about; 130: Ctrl-C.

This page is generated from the commands by `python tools/generate_cli_docs.py`.
"""


def page() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("luftpause", [], resilient_parsing=True)
    return HEAD + "".join(part for name in root.list_commands(context) for part in _parts(root.get_command(context, name), context, name))


def _parts(command: Any, above: Any, name: str) -> Iterator[str]:
    if command.hidden:
        return
    context = command.context_class(command, info_name=name, parent=above, max_content_width=100)
    if hasattr(command, "list_commands") and (inner := command.list_commands(context)):
        for each in inner:
            yield from _parts(command.get_command(context, each), context, each)
        return
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"\n## `{context.command_path}`\n\n{_told(command)}\n\n```\n{usage}\n```\n"
    rows = [_row(each, context) for each in command.params if not getattr(each, "hidden", False)]
    if rows:
        yield "\n| option | meaning |\n|---|---|\n" + "".join(rows)


def _told(command: Any) -> str:
    return inspect.cleandoc(command.help or "").strip()


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        record = (parameter.metavar or parameter.name.upper(), parameter.help or "")
    else:
        record = parameter.get_help_record(context) or ("", "")
    names, meaning = (cell.replace("|", chr(92) + "|") for cell in record)
    return f"| `{names}` | {meaning} |\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(page(), encoding="utf-8")
