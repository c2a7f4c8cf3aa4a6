"""Do the governor's settings say what they mean, and are mistakes in them named?"""

from pathlib import Path

import pytest

from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from luftpause.kit.config_quota import target_of, targets_of
from luftpause.kit.errors import ConfigError

REPLICA = "replicas:\n  - name: hosted\n    url: https://api.example.com/v1\n"


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "luftpause.yaml").write_text(text, encoding="utf-8")
    return load(tmp_path / "luftpause.yaml", {})


def mistake(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, text)
    return found.value.message


def test_a_replica_shares_a_target_by_its_name(tmp_path: Path) -> None:
    config = read(tmp_path, REPLICA + "    quota: team\ngovernor:\n  targets:\n    team: {profile: openai}\n")
    assert target_of(config.replicas[0], config.governor) == "team"
    assert {name: each.profile for name, each in targets_of(config.governor, config.replicas).items()} == {"team": "openai"}


def test_a_replica_has_a_target_of_its_own_by_a_profile(tmp_path: Path) -> None:
    config = read(tmp_path, REPLICA + "    quota: anthropic\n")
    assert target_of(config.replicas[0], config.governor) == "hosted"
    assert {name: each.profile for name, each in targets_of(config.governor, config.replicas).items()} == {"hosted": "anthropic"}


def test_a_replica_has_a_target_of_its_own_by_settings(tmp_path: Path) -> None:
    config = read(tmp_path, REPLICA + "    quota: {profile: azure, limits: {tokens: 30000}}\n")
    assert targets_of(config.governor, config.replicas)["hosted"].limits == {"tokens": 30_000}


def test_a_replica_without_a_quota_has_no_target(tmp_path: Path) -> None:
    config = read(tmp_path, REPLICA)
    assert target_of(config.replicas[0], config.governor) is None
    assert targets_of(config.governor, config.replicas) == {}


def test_a_workflow_may_be_a_list(tmp_path: Path) -> None:
    config = read(tmp_path, "governor:\n  cascade:\n    workflows:\n      w: [a, b, c]\n      v: {a: [b, c]}\n")
    assert config.governor.cascade.workflows == {"w": {"a": ("b",), "b": ("c",)}, "v": {"a": ("b", "c")}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REPLICA + "    quota: opnai\n", "its quota 'opnai' is no target and no profile; known: auto, github, copilot, openai"),
        (REPLICA + "    on_limit: pass\n", "on_limit has no effect without `quota`"),
        (REPLICA + "    quota: {target: openai, limits: {tokens: 1}}\n", "leave limits out, or set them there"),
        (REPLICA + "    quota: openai\ngovernor:\n  targets:\n    hosted: {}\n", "rename one of them"),
        (REPLICA + "    quota: {profle: openai}\n", "unknown key; did you mean profile?"),
        ("governor:\n  targets:\n    a: {reservations: {x: 0.7, y: 0.5}}\n", "`reservations` add up to 1.2; at most 1"),
        ("governor:\n  targets:\n    a: {thresholds: {green: 0.1, red: 0.5}}\n", "`red` (0.5) must not be above `green` (0.1)"),
        ("governor:\n  targets:\n    a: {scopes: [{name: x, limit: 1}, {name: x, limit: 2}]}\n", "two scopes are named x"),
        ("governor:\n  targets:\n    a: {scopes: [{name: x, limit: 0}]}\n", "targets.a.scopes[0].limit: 0 should be greater than 0"),
        ("governor:\n  store: etcd://x\n", "must be `memory` or begin with redis://"),
        ("governor:\n  store: redis://x\n  state: quota.json\n", "`state` is for `store: memory`"),
        ("governor:\n  store: redis://x\n  policy: article\n", "`policy: article` knows one node only; use `store: memory`"),
        ("governor:\n  callers:\n    a: {priority: 3}\n", "callers.a.priority: 3 must be 0, 1 or 2"),
        ("governor:\n  tragets: {}\n", "unknown key; did you mean targets?"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistake(tmp_path, text)
