"""Is a configuration file all right, and what does it set up?"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from luftpause.kit.errors import ConfigError

if TYPE_CHECKING:
    from luftpause.kit.config import Config

SHOWN: Final = {"name", "url", "models", "kind", "load", "load_from", "max_in_flight", "apis"}

app = typer.Typer(no_args_is_help=True, help="Work with luftpause.yaml.")


@app.callback()
def config() -> None:
    """Work with luftpause.yaml."""  # a single command would else swallow the name `check`


@app.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="The file to check.")] = Path("luftpause.yaml"),
    *,
    named: Annotated[Path | None, typer.Option("--config", hidden=True, help="The file, as other commands are told it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Check a configuration file together with the environment.

    Prints what it sets up, or every mistake with its line. Exit status 1: there are mistakes.
    """
    from luftpause.cli.config_notes import notes
    from luftpause.kit.config_file import load
    from luftpause.scheduler.governor.targets import initial_state, specs_of

    path = named or path
    try:
        config = load(path)
        initial_state(config.governor, 0.0)
        found = _found(config) | {
            "quotas": [spec.name for spec in specs_of(config.governor, config.replicas)],
            "notes": notes(config, os.environ),
        }
    except ConfigError as error:
        mistakes = error.message.splitlines()
        if as_json:
            print(json.dumps({"ok": False, "path": str(path), "mistakes": mistakes}, indent=2))
        else:
            print("\n".join(mistakes), file=sys.stderr)
        raise typer.Exit(1) from None
    print(json.dumps({"ok": True, "path": str(path), **found}, indent=2) if as_json else _text(path, found))


def _found(config: "Config") -> dict[str, Any]:
    scheduler, dataplane, runtime = config.scheduler, config.dataplane, config.runtime
    return {
        "scheduler": {
            "grpc": _address(scheduler.host, scheduler.grpc_port),
            "http": f"http://{_address(scheduler.host, scheduler.http_port)}",
        },
        "dataplane": {"http": f"http://{_address(dataplane.host, dataplane.port)}", "scheduler": dataplane.scheduler},
        "runtime": {"http": f"http://{_address(runtime.host, runtime.port)}", "dataplane": runtime.dataplane},
        "replicas": [each.model_dump(mode="json", include=SHOWN) for each in config.replicas],
        "servers": list(runtime.servers),
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text(path: Path, found: dict[str, Any]) -> str:
    replicas = [f"{each['name']} at {each['url']}, {_models(each['models'])}{_load(each)}" for each in found["replicas"]]
    lines = {
        "scheduler": f"{found['scheduler']['grpc']} (gRPC), {found['scheduler']['http']} (status)",
        "dataplane": f"{found['dataplane']['http']}, scheduler at {found['dataplane']['scheduler']}",
        "runtime": f"{found['runtime']['http']}/mcp, dataplane at {found['runtime']['dataplane']}",
        "replicas": ("\n" + " " * 15).join(replicas) or "none",
        "tool servers": ", ".join(found["servers"]) or "none",
        **({"quotas": ", ".join(found["quotas"])} if found["quotas"] else {}),
    }
    return "\n".join([
        f"{path}: ok",
        *(f"  {name:<12} {text}" for name, text in lines.items()),
        *(f"note: {note}" for note in found["notes"]),
    ])


def _load(replica: dict[str, Any]) -> str:
    return f", load from {', '.join(replica['load_from'])}" if replica["load_from"] and replica["load"] != "none" else ""


def _models(models: list[str] | None) -> str:
    return "models as it says itself" if models is None else f"models {', '.join(models) or 'none'}"
