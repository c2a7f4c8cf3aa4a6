"""What does `luftpause config check` say, and with which exit status?"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luftpause.cli import app as cli

runner = CliRunner()

GOOD = """
replicas:
- {name: a, url: "http://x:1/v1", models: [m1, m2]}
- {name: b, url: "http://y:2"}
scheduler: {host: "::1"}
runtime:
  servers:
    lookup: {command: lookup}
"""
BAD = "replicas:\n- {name: a, url: 'http://x', helth: /h}\nlog:\n  level: loud\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "luftpause.yaml"


def test_a_good_file_is_called_good_and_what_it_sets_up_is_listed(file: Path) -> None:
    file.write_text(GOOD)
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        f"{file}: ok",
        "  scheduler    [::1]:5000 (gRPC), http://[::1]:5001 (status)",
        "  dataplane    http://127.0.0.1:8080, scheduler at 127.0.0.1:5000",
        "  runtime      http://127.0.0.1:7000/mcp, dataplane at http://127.0.0.1:8080",
        "  replicas     a at http://x:1/v1, models m1, m2",
        "               b at http://y:2, models as it says itself",
        "  tool servers lookup",
    ]


def test_a_key_that_is_not_in_the_environment_is_noted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("replicas:\n- {name: a, url: 'http://x', api_key_env: SOME_KEY}\n")
    noted = "note: a: the environment variable SOME_KEY (api_key_env) is not set here; set it where the services run"
    monkeypatch.delenv("SOME_KEY", raising=False)
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert (answer.exit_code, answer.stdout.splitlines()[-1]) == (0, noted)
    monkeypatch.setenv("SOME_KEY", "x")
    assert "note" not in runner.invoke(cli.app, ["config", "check", str(file)]).stdout


def test_all_mistakes_are_listed_on_stderr_with_exit_status_1(file: Path) -> None:
    file.write_text(BAD)
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr.splitlines() == [
        f"{file}:2: replicas[0].helth: unknown key; did you mean health?",
        f"{file}:4: log.level: 'loud' must be 'debug', 'info', 'warning' or 'error'",
    ]


def test_a_script_reads_both_answers_as_json(file: Path) -> None:
    file.write_text(GOOD)
    good = json.loads(runner.invoke(cli.app, ["config", "check", str(file), "--json"]).stdout)
    assert good["ok"]
    assert good["scheduler"]["grpc"] == "[::1]:5000"
    assert [replica["name"] for replica in good["replicas"]] == ["a", "b"]
    file.write_text(BAD)
    answer = runner.invoke(cli.app, ["config", "check", "--json", str(file)])
    bad = json.loads(answer.stdout)
    assert (answer.exit_code, bad["ok"], len(bad["mistakes"])) == (1, False, 2)


def test_a_missing_file_is_a_mistake_too(file: Path) -> None:
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert answer.exit_code == 1
    assert "can't be read: No such file or directory" in answer.stderr


def test_variables_of_the_environment_are_checked_too(file: Path) -> None:
    file.write_text(GOOD)
    answer = runner.invoke(cli.app, ["config", "check", str(file)], env={"LUFTPAUSE_DATAPLANE__PROT": "1"})
    assert answer.stderr == "LUFTPAUSE_DATAPLANE__PROT: dataplane has no key prot; did you mean port?\n"


def test_pages_of_a_routers_load_are_shown_and_notes_follow(file: Path) -> None:
    file.write_text("replicas:\n- {name: r, url: 'http://r', load_from: ['http://a:1', 'http://b:2']}\n")
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert "  replicas     r at http://r, models as it says itself, load from http://a:1, http://b:2" in answer.stdout.splitlines()
    assert answer.stdout.splitlines()[-1].startswith("note: r: its load is the sum of 2 pages")
    shown = json.loads(runner.invoke(cli.app, ["config", "check", str(file), "--json"]).stdout)
    assert shown["replicas"][0]["load_from"] == ["http://a:1", "http://b:2"]
    file.write_text("replicas:\n- {name: r, url: 'http://r', load_from: ['http://a:1', 'http://a:1']}\n")
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert answer.stderr == f"{file}:2: replicas[0].load_from: names http://a:1 twice; its load would count double\n"


def test_quotas_are_listed_and_mistakes_in_them_are_named(file: Path) -> None:
    file.write_text("governor:\n  targets:\n    github: {profile: github}\n")
    assert "  quotas       github" in runner.invoke(cli.app, ["config", "check", str(file)]).stdout.splitlines()
    file.write_text("governor:\n  targets:\n    github: {profile: github, limits: {corr: 15000}}\n")
    answer = runner.invoke(cli.app, ["config", "check", str(file)])
    assert answer.exit_code == 1
    assert "'corr'" in answer.stderr
    file.write_text("governor:\n  cascade:\n    workflows: {w: {a: [b], b: [a]}}\n")
    assert "go in a circle" in runner.invoke(cli.app, ["config", "check", str(file)]).stderr


def test_the_file_may_be_named_as_for_other_commands(file: Path) -> None:
    file.write_text(GOOD)
    both = [runner.invoke(cli.app, ["config", "check", *named]) for named in (["--config", str(file)], [str(file)])]
    assert both[0].exit_code == 0
    assert both[0].stdout == both[1].stdout
