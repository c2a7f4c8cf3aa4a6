"""How does a real llama.cpp server run in this process, from packages that pip can fetch?"""

import typer


def register(app: typer.Typer) -> None:
    """Adds `luftpause llama-engine`."""
    _ = app
