"""Is a configuration read as it is meant, and is every mistake named with its line and its mend?"""

from pathlib import Path

import pytest

from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from luftpause.kit.errors import ConfigError


def read(tmp_path: Path, text: str, **environment: str) -> Config:
    file = tmp_path / "luftpause.yaml"
    file.write_text(text)
    return load(file, environment)


def mistake(tmp_path: Path, text: str, **environment: str) -> str:
    """The message, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, **environment)
    return caught.value.message.replace(f"{tmp_path}/", "")


def test_no_file_means_all_defaults() -> None:
    assert load(None, {}) == Config()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_means_all_defaults(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text) == Config()


def test_values_are_read(tmp_path: Path) -> None:
    config = read(tmp_path, "replicas:\n- {name: a, url: 'http://x:1', models: [m]}\nruntime:\n  servers:\n    s: {command: run}\n")
    assert config.replicas[0].models == ("m",)
    assert config.runtime.servers["s"].command == "run"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "replicas:\n- {name: a, url: 'http://x'}\n- name: b\n  url: http://y\n  helth: /h\n",
            "luftpause.yaml:5: replicas[1].helth: unknown key; did you mean health?",
        ),
        ("scheduler:\n  grpc_port: 70000\n", "luftpause.yaml:2: scheduler.grpc_port: 70000 should be less than or equal to 65535"),
        ("scheduler:\n\n  policy: best\n", "luftpause.yaml:3: scheduler.policy: 'best' must be 'original'"),
        ("schedular: {}\n", "luftpause.yaml:1: schedular: unknown key; did you mean scheduler?"),
        ("replicas:\n  - name: a\n", "luftpause.yaml:2: replicas[0].url: is missing"),
        ("runtime:\n  servers:\n    s: {urll: x}\n", "luftpause.yaml:3: runtime.servers.s.urll: unknown key; did you mean url?"),
        ("log:\n  level: info\n  level: debug\n", "luftpause.yaml:3: log.level: given twice"),
        ("log: [\n", "luftpause.yaml:2: not valid YAML: expected the node content, but found '<stream end>'"),
        ("- a\n", "luftpause.yaml:1: must be a mapping of replicas, scheduler, dataplane, runtime, log"),
        (
            "dataplane:\n  port: ${PORT}\n",
            "luftpause.yaml:2: dataplane.port: the environment variable PORT is not set; set it, or write ${PORT:-default}",
        ),
        (
            "dataplane:\n  name: ${}\n",
            "luftpause.yaml:2: dataplane.name: ${} is no variable; write ${NAME} or ${NAME:-default}, and $$ for a plain $",
        ),
        ("runtime:\n  servers:\n    s: {}\n", "luftpause.yaml:3: runtime.servers.s: give either `url` or `command`"),
        (
            "runtime:\n  servers:\n    s: {url: 'http://x', command: y}\n",
            "luftpause.yaml:3: runtime.servers.s: give either `url` or `command`",
        ),
        (
            "replicas: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]\n",
            "luftpause.yaml:1: two replicas are named a; each needs a name of its own",
        ),
        (
            "replicas: [{name: a, url: 'http://x?y'}]\n",
            "luftpause.yaml:1: replicas[0].url: url 'http://x?y': holds a query or fragment; a base URL ends with its path",
        ),
    ],
)
def test_a_mistake_is_named_with_line_and_mend(text: str, message: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, text) == message


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    said = mistake(tmp_path, "log: {level: loud}\nscheduler: {http_port: -1}\n").splitlines()
    assert [line.split(":")[1] for line in said] == ["2", "1"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/nowhere.yaml: can't be read: No such file or directory; name another with --config"):
        load(Path("/nowhere.yaml"), {})


def test_variables_are_expanded_with_their_defaults(tmp_path: Path) -> None:
    text = "dataplane: {port: '${PORT:-9}', name: 'a${MIDDLE}z', scheduler: '${EMPTY:-h:1}'}\nruntime: {default_model: 'cost$$5'}\n"
    config = read(tmp_path, text, MIDDLE="-", EMPTY="")
    assert (config.dataplane.port, config.dataplane.name, config.dataplane.scheduler) == (9, "a-z", "h:1")
    assert config.runtime.default_model == "cost$5"


def test_a_secret_from_a_variable_is_not_shown(tmp_path: Path) -> None:
    said = mistake(tmp_path, "dataplane:\n  port: ${KEY}\n", KEY="s3cret")
    assert "s3cret" not in said
    assert "'${KEY}'" in said


def test_the_environment_overrides_scalars(tmp_path: Path) -> None:
    config = read(tmp_path, "dataplane: {port: 1, name: mine}\n", LUFTPAUSE_DATAPLANE__PORT="2", LUFTPAUSE_LOG__LEVEL="debug")
    assert (config.dataplane.port, config.dataplane.name, config.log.level) == (2, "mine", "debug")


def test_names_without_double_underscore_are_not_settings(tmp_path: Path) -> None:
    assert read(tmp_path, "", LUFTPAUSE_TOKEN="t", LUFTPAUSE_VERSION="1") == Config()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LUFTPAUSE_DATAPLANE__PORTT", "1", "LUFTPAUSE_DATAPLANE__PORTT: dataplane has no key portt; did you mean port?"),
        ("LUFTPAUSE_DATPLANE__PORT", "1", "LUFTPAUSE_DATPLANE__PORT: no section datplane; did you mean dataplane?"),
        ("LUFTPAUSE_RUNTIME__SERVERS", "x", "LUFTPAUSE_RUNTIME__SERVERS: runtime.servers is a list or mapping; set it in the file"),
        ("LUFTPAUSE_DATAPLANE__PORT", "high", "LUFTPAUSE_DATAPLANE__PORT: should be a valid integer, unable to parse string as an integer"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, message: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, "", **{name: value}) == message


def test_anchors_may_not_nest_without_end(tmp_path: Path) -> None:
    assert "nested deeper" in mistake(tmp_path, "log: &a\n  level: *a\n")
