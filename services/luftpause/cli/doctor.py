"""What is wrong with this installation, and how is it mended?"""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Path of luftpause.yaml.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Look for what goes wrong in practice, and say how to mend it.

    Looks at the configuration, the environment, ports, each replica's health, models, load and key, the services, tool servers and the
    state directory. Starts nothing and changes nothing. Exit status 0: nothing is wrong; 1: faults were found.
    """
    from msgspec import to_builtins

    from luftpause.cli.doctor_all import examine
    from luftpause.cli.doctor_findings import in_all, text
    from luftpause.kit import logs

    logs.setup("error")
    findings = asyncio.run(examine(config))
    faulty = any(finding.level == "fault" for finding in findings)
    if as_json:
        print(json.dumps({"ok": not faulty, "findings": to_builtins(findings)}, indent=2))
    else:
        print(f"{text(findings)}\n{in_all(findings)}")
    raise typer.Exit(1 if faulty else 0)
