"""Which measurements and simulations does `luftpause bench` run?"""

from collections.abc import Callable
from typing import Final

import typer

from luftpause_bench.registry import BENCHES, run

app = typer.Typer(no_args_is_help=True, help="Measure, compare and simulate. Each has its own --help.")

# Each benchmark reads its own arguments, --help too.
ANY_ARGUMENTS: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": list[str]()}


def _command(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(run(name, context.args))

    return command


for _name, _entry in sorted(BENCHES.items()):
    app.command(_name, help=_entry.about, context_settings=ANY_ARGUMENTS, add_help_option=False)(_command(_name))
