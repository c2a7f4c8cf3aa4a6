"""Does each command answer a person as it should, and quickly?"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luftpause import __version__
from luftpause.cli import app as cli

runner = CliRunner()


def luftpause(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "luftpause", *arguments], capture_output=True, text=True, timeout=60, check=False)


def commands() -> list[str]:
    return [command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback]


@pytest.mark.parametrize("how", ["version", "--version"])
def test_the_version_is_printed(how: str) -> None:
    assert runner.invoke(cli.app, [how]).output == f"{__version__}\n"


@pytest.mark.parametrize("command", [*commands(), "config"])
def test_every_command_explains_itself(command: str) -> None:
    answer = runner.invoke(cli.app, [command.replace("_", "-"), "--help"])
    assert answer.exit_code == 0
    assert answer.output.startswith("Usage: ")


def test_help_imports_nothing_that_only_services_need() -> None:
    heavy = "{'mcp', 'starlette', 'pydantic', 'grpc', 'httpx', 'uvicorn', 'rich.progress', 'xllamacpp', 'luftpause.kit.config'}"
    program = f"import sys, luftpause.cli.app; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_good_configuration_is_called_good(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_text("replicas:\n- {name: a, url: 'http://x'}\n")
    checked = luftpause("config", "check", str(file))
    assert checked.returncode == 0
    assert checked.stdout.startswith(f"{file}: ok\n")


def test_a_mistake_in_the_configuration_is_shown_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_text("replicas:\n- {name: a, url: 'http://x', helth: /h}\n")
    checked = luftpause("config", "check", str(file))
    assert checked.returncode == 1
    assert checked.stderr == f"{file}:2: replicas[0].helth: unknown key; did you mean health?\n"


def test_ctrl_c_during_the_first_imports_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, signal, os\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    tried = subprocess.run(
        [sys.executable, "-m", "luftpause", "up", "--free-ports"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job, as these tests may be, ignores it
    )  # fmt: skip
    assert (tried.returncode, tried.stdout, tried.stderr) == (130, "", "")
