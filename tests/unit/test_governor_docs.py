"""Does the page about the governor say what is so?"""

import re
from pathlib import Path

import httpx
import openai
import pytest
from msgspec.structs import fields

from luftpause.client import QuotaTransport
from luftpause.dataplane.proxy import answers, gate
from luftpause.kit.config_file import load
from luftpause.kit.config_governor import PROFILES
from luftpause.scheduler.governor.targets import specs_of
from luftpause.scheduler.quota.view import TargetView

PAGE = (Path(__file__).parents[2] / "docs/governor.md").read_text()
PATTERNS = {
    "1 traffic light": "traffic_light",
    "2 shared pool": "shared_pool",
    "3 predictive breaker": "breaker",
    "4 cascade detector": "cascade",
    "5 leases": "leases",
    "6 retry windows": "retry_windows",
    "7 many nodes": "nodes",
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_each_configuration_is_one(number: int, tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_text(blocks("yaml")[number])
    config = load(file)
    assert config.governor.targets or config.replicas
    specs_of(config.governor, config.replicas)


def test_the_incidents_configuration_is_the_incidents(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_text(blocks("yaml")[0])
    governor = load(file).governor
    named = [each.priority for name, each in governor.callers.items() if name != "*"]
    assert sorted(priority for priority in named if priority is not None) == [0, 0, 1, 1, 1, 1, 1, 2, 2]
    (spec,) = [each for each in specs_of(governor, ()) if each.name == "github"]
    assert {scope.name: scope.limit for scope in spec.scopes}["core"] == 5000
    assert spec.penalty_seconds == 60


def test_each_pattern_has_its_name_and_is_shown_under_it() -> None:
    shown = {field.name for field in fields(TargetView)}
    for name, key in PATTERNS.items():
        assert f"| {name} | `{key}` |" in PAGE
        assert f"### {name[0]} {name[2:].capitalize()}" in PAGE
        assert key in shown


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_each_snippet_runs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names: dict[str, object] = {}
    exec(compile(blocks("python")[number], f"snippet {number}", "exec"), names)
    clients = [each for each in names.values() if isinstance(each, httpx.Client | openai.OpenAI)]
    assert clients
    assert names["QuotaTransport"] is QuotaTransport
    for each in clients:
        each.close()


def test_each_code_of_the_proxy_is_explained() -> None:
    known = {each.code for each in (gate.OFF, gate.CLOSED, gate.NO_TOKEN, gate.OUR_TOKEN)} | {
        "bad_proxy_path",
        "quota_wait",
        "target_failed",
    }
    known |= {"out_of_credit", "too_large", "unknown_target"} & set(answers.STATUSES)
    table = PAGE.partition("## Troubleshooting")[2]
    assert [code for code in sorted(known) if f"`{code}`" not in table] == []


def test_it_names_settings_that_there_are() -> None:
    settings = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    for name in (
        "thresholds",
        "reservations",
        "declared_demand",
        "protect",
        "floor",
        "penalty_seconds",
        "ladder",
        "fallback",
        "lease_seconds",
    ):
        assert f"`{name}`" in settings, name
        assert re.search(rf"[`.\]]{name}`", PAGE)
    assert "profile: github" in PAGE
    assert "github" in PROFILES
