"""Is the configuration of a whole stack what its options ask for?"""

import importlib.util
from pathlib import Path

import pytest

from luftpause.cli import stack, weights
from luftpause.cli.choices import Engine
from luftpause.kit import serve
from luftpause.kit.config import Config, ReplicaConfig, RuntimeConfig, UpstreamConfig
from luftpause.kit.config_file import load
from luftpause.kit.errors import ConfigError, LuftpauseError


def test_ports_change_only_where_one_is_given() -> None:
    config = stack.with_ports(Config(), dataplane=1, status=2)
    assert (config.dataplane.port, config.scheduler.grpc_port, config.scheduler.http_port, config.runtime.port) == (1, 5000, 2, 7000)


def test_an_option_wins_over_free_ports() -> None:
    config = stack.with_ports(stack.with_free_ports(Config()), runtime=7)
    assert (config.dataplane.port, config.scheduler.grpc_port, config.scheduler.http_port, config.runtime.port) == (0, 0, 0, 7)


def test_every_port_in_use_is_found_before_anything_starts() -> None:
    with serve.listen("127.0.0.1", 0, option="-") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        config = stack.with_ports(stack.with_free_ports(Config()), status=port)
        with pytest.raises(LuftpauseError, match=rf"port {port} on 127\.0\.0\.1 is in use; choose another with --status-port"):
            stack.check_ports(config)


def test_the_file_s_replicas_take_the_turns_unless_an_engine_is_asked_for() -> None:
    with_replicas = Config(replicas=(ReplicaConfig(name="a", url="http://x"),))
    assert stack.choose_engine(with_replicas, None, from_file=True) is None
    assert stack.choose_engine(with_replicas, Engine.FAKE, from_file=True) is Engine.FAKE
    assert stack.choose_engine(Config(), None, from_file=False) is Engine.FAKE
    with pytest.raises(ConfigError, match="replicas: the file names none"):
        stack.choose_engine(Config(), None, from_file=True)


def test_a_written_configuration_reads_back_as_the_same(tmp_path: Path) -> None:
    config = stack.with_state(
        stack.with_free_ports(Config(replicas=(ReplicaConfig(name="a", url="http://x", models=("m", "n"), health=None),))), tmp_path
    )
    path = tmp_path / "scheduler.yaml"
    stack.write(config, path)
    assert load(path) == config
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_extra_names_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LuftpauseError, match=r"pip install -c constraints.txt -e '\.\[local\]'"):
        stack.prepare_engine(Engine.LLAMACPP)
    stack.prepare_engine(Engine.FAKE)


def test_weights_are_fetched_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(weights, "smollm2", lambda *, fetch=True: asked.append(fetch))
    stack.prepare_engine(Engine.LLAMACPP)
    assert asked == [True]


def test_the_scheduler_of_a_running_stack_gets_other_replicas_and_nothing_else(tmp_path: Path) -> None:
    started = stack.with_free_ports(Config(replicas=(ReplicaConfig(name="a", url="http://x"),)))
    plan = stack.Plan(started, None, tmp_path)
    written = tmp_path / "scheduler.yaml"
    read = stack.with_ports(Config(replicas=(ReplicaConfig(name="b", url="http://y", models=("m",)),)), scheduler=7)
    stack.take_replicas(plan, read)
    now = load(written)
    assert [each.name for each in now.replicas] == ["b"]
    assert (now.scheduler.grpc_port, now.scheduler.dataplanes_expected) == (0, ("dataplane",))
    stack.take_replicas(plan, Config())
    assert load(written).replicas == ()
    assert "replicas" in load(written).model_fields_set  # so that it counts as meant


def test_replicas_of_the_file_are_not_used_beside_an_engine_that_was_asked_for(tmp_path: Path) -> None:
    stack.take_replicas(stack.Plan(Config(), Engine.FAKE, tmp_path), Config(replicas=(ReplicaConfig(name="b", url="http://y"),)))
    assert list(tmp_path.iterdir()) == []


def test_a_dollar_that_is_left_after_expansion_stands_for_itself(tmp_path: Path) -> None:
    headers = {"authorization": "a$$b ${NOT_SET} $c"}
    config = Config(runtime=RuntimeConfig(servers={"t": UpstreamConfig(url="http://t", headers=headers)}))
    stack.write(config, tmp_path / "runtime.yaml")
    assert load(tmp_path / "runtime.yaml", {}).runtime.servers["t"].headers == headers
