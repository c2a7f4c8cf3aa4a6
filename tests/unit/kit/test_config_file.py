"""Is a configuration read as it is meant, and is every mistake named with its line and its mend?"""

from pathlib import Path

import pytest

from luftpause.kit.config import Config
from luftpause.kit.config_file import load, overlooked
from luftpause.kit.errors import ConfigError

LIST = "must be a list: entries within [ ], or each on a line of its own that begins with `- `"
MAPPING = "must be a mapping: lines of `key: value`, indented below it"
TEXT = "must be text: write it in quotes"
EMPTY = "is empty; give it a value, or leave it out"
NO_NAME = "must be the name of an environment variable (letters, digits and `_`); the key itself stands in that variable"
A_KEY = "this looks like a key; put the key into an environment variable, and write that one's name here"


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
        ("scheduler:\n\n  policy: best\n", "luftpause.yaml:3: scheduler.policy: 'best' must be 'original' or 'guard'"),
        (
            "dataplane: {scheduler: 'http://x:5000'}\n",
            "luftpause.yaml:1: dataplane.scheduler: 'http://x:5000' is no address; write host:port, without http://",
        ),
        ("schedular: {}\n", "luftpause.yaml:1: schedular: unknown key; did you mean scheduler?"),
        ("replicas:\n  - name: a\n", "luftpause.yaml:2: replicas[0].url: is missing"),
        (
            "governor:\n  targets:\n    g: {scopes: [{name: a, limit: 1, burts: 2}]}\n",
            "luftpause.yaml:3: governor.targets.g.scopes[0].burts: unknown key; did you mean burst?",
        ),
        ("runtime:\n  servers:\n    s: {urll: x}\n", "luftpause.yaml:3: runtime.servers.s.urll: unknown key; did you mean url?"),
        ("log:\n  level: info\n  level: debug\n", "luftpause.yaml:3: log.level: given twice"),
        ("log: [\n", "luftpause.yaml:2: not valid YAML: expected the node content, but found '<stream end>'"),
        ("replicas:\n  - name: a\n   url: http://x\n", "luftpause.yaml:3: not valid YAML: this line is not indented as those before it"),
        ("runtime: {state: ${HOME}}\n", "luftpause.yaml:1: not valid YAML: within { } or [ ] a value with ${…} must be quoted"),
        (
            "replicas:\n- name: a\n  url: 127.0.0.1:8000\n",
            "luftpause.yaml:3: replicas[0].url: '127.0.0.1:8000' must begin with http:// or https:// and hold no spaces",
        ),
        (
            "replicas:\n- name: my engine\n  url: http://x\n",
            (
                "luftpause.yaml:2: replicas[0].name: 'my engine' must be letters, digits, `.`, `_` and `-`, at most 64, "
                "the first a letter or digit"
            ),
        ),
        ("- a\n", "luftpause.yaml:1: must be a mapping of replicas, scheduler, dataplane, runtime, governor, auth, log"),
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
            "luftpause.yaml:1: replicas[1].name: 'a' is taken; each replica needs a name of its own",
        ),
        (
            "replicas: [{name: a, url: 'http://x?y'}]\n",
            "luftpause.yaml:1: replicas[0].url: url 'http://x?y': holds a query or fragment; a base URL ends with its path",
        ),
    ],
)
def test_a_mistake_is_named_with_line_and_mend(text: str, message: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Replicas: []", "Replicas: unknown key; did you mean replicas?"),
        ("log: {LEVEL: info}", "log.LEVEL: unknown key; did you mean level?"),
        ("dataplane: {connect-seconds: 1}", "dataplane.connect-seconds: unknown key; did you mean connect_seconds?"),
        ("scheduler:\n#  policy: guard", f"scheduler: {EMPTY}"),
        ("dataplane: {port: }", f"dataplane.port: {EMPTY}"),
        ("replicas: http://x", f"replicas: 'http://x' {LIST}"),
        ("replicas:\n  name: a", f"replicas: {LIST}"),
        ("replicas: [{name: a, url: 'http://x', models: m}]", f"replicas[0].models: 'm' {LIST}"),
        ("replicas: [{name: a, url: 'http://x', models: [3.1]}]", f"replicas[0].models[0]: 3.1 {TEXT}"),
        ("replicas: [{name: no, url: 'http://x'}]", f"replicas[0].name: false {TEXT}"),
        ("replicas: [a]", f"replicas[0]: 'a' {MAPPING}"),
        ("runtime: {servers: [a]}", f"runtime.servers: {MAPPING}"),
        ("dataplane: {port: 8080.5}", "dataplane.port: 8080.5 must be a whole number"),
        ("dataplane: {connect_seconds: 2s}", "dataplane.connect_seconds: '2s' must be a number"),
        ("dataplane: {connect_seconds: .inf}", "dataplane.connect_seconds: inf must be a finite number"),
        ("scheduler: {probe_seconds: .nan}", "scheduler.probe_seconds: nan must be a finite number"),
        ("auth: {insecure: maybe}", "auth.insecure: 'maybe' must be true or false"),
        (
            "replicas: [{name: a, url: 'http://x', health: 'http://x/h'}]",
            "replicas[0].health: 'http://x/h' must be a path alone, as in /health",
        ),
        ("runtime: {dataplane: 'localhost:1'}", "runtime.dataplane: 'localhost:1' must begin with http:// or https:// and hold no spaces"),
        ("scheduler: {host: ''}", "scheduler.host: is empty; write 127.0.0.1 for this machine alone, or 0.0.0.0 for all that can reach it"),
        ("log: {}\n---\nlog: {}", "not valid YAML: `---` begins a second document, and only one is read"),
        ("replicas:\n  - name:a\n    url: http://x", "not valid YAML: a `key: value` can't stand here: there must be a space after"),
    ],
)
def test_a_mistake_is_told_in_words_of_yaml(text: str, says: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, text + "\n").partition(": ")[2].startswith(says)


@pytest.mark.parametrize("path", ["up", "/up", "//up"])
def test_the_path_of_a_health_check_begins_at_the_root(path: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"replicas: [{{name: a, url: 'http://x', health: {path}}}]\n").replicas[0].health == "/up"


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    said = mistake(tmp_path, "log: {level: loud}\nscheduler: {http_port: -1}\n").splitlines()
    assert [line.split(":")[1] for line in said] == ["1", "2"]


def test_mistakes_of_every_kind_are_named_at_once(tmp_path: Path) -> None:
    text = """
replicas:
- {name: a, url: "http://x"}
- {name: a, url: "${WHERE}", helth: /h}
dataplane:
  port: high
  port: low
log: {level: loud}
"""
    said = mistake(tmp_path, text, LUFTPAUSE_SCHEDULER__GRPC_PROT="1", LUFTPAUSE_DATAPLANE__FAILOVER="perhaps").splitlines()
    assert said == [
        "luftpause.yaml:4: replicas[1].url: the environment variable WHERE is not set; set it, or write ${WHERE:-default}",
        "luftpause.yaml:4: replicas[1].name: 'a' is taken; each replica needs a name of its own",
        "luftpause.yaml:4: replicas[1].helth: unknown key; did you mean health?",
        "luftpause.yaml:7: dataplane.port: given twice",
        "luftpause.yaml:8: log.level: 'loud' must be 'debug', 'info', 'warning' or 'error'",
        "LUFTPAUSE_SCHEDULER__GRPC_PROT: scheduler has no key grpc_prot; did you mean grpc_port?",
        "LUFTPAUSE_DATAPLANE__FAILOVER: must be true or false",
    ]


def test_a_long_list_of_mistakes_is_cut(tmp_path: Path) -> None:
    said = mistake(tmp_path, "".join(f"key{number}: 1\n" for number in range(25))).splitlines()
    assert len(said) == 11
    assert said[-1] == "and 15 more"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"log: {level: \xff}\n", "luftpause.yaml: is not UTF-8 text (invalid start byte); save it as UTF-8"),
        (b"log: \x00\n", "luftpause.yaml: not valid YAML: it holds a control character; is this a text file?"),
        (b"a: 1\n---\nb: 2\n", "luftpause.yaml:2: not valid YAML: `---` begins a second document"),
        (b"just words\n", "luftpause.yaml:1: must be a mapping of replicas, scheduler, dataplane, runtime, governor, auth, log"),
        (b"log: !!python/object:os.system {}\n", "luftpause.yaml:1: not valid YAML: could not determine a constructor for the tag"),
        (b"log: 2024-99-99\n", "luftpause.yaml: not valid YAML: month must be in 1..12"),
        (b"\tlog: x\n", "luftpause.yaml:1: not valid YAML: a tab at the beginning; YAML is indented with spaces"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert caught.value.message.replace(f"{tmp_path}/", "").startswith(message)


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path, {})


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12)]
    assert "aliases included" in mistake(tmp_path, "\n".join(levels) + "\n")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/nowhere.yaml: can't be read: No such file or directory; is the path right\?"):
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
        ("LUFTPAUSE_DATAPLANE__PORT", "high", "LUFTPAUSE_DATAPLANE__PORT: must be a whole number"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, message: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, "", **{name: value}) == message


@pytest.mark.parametrize(
    ("text", "environment", "says"),
    [
        ("sk-ab0123456789", {}, NO_NAME),
        ("hf_AbCdEfGhIjKlMnOpQrStUv0123", {}, A_KEY),
        ("${HOSTED}", {}, "api_key_env takes the name of a variable, not its value: write `api_key_env: HOSTED`"),
        ("${HOSTED}", {"HOSTED": "sk-ab0123456789"}, NO_NAME),
    ],
)
def test_a_key_in_the_place_of_its_variable_is_not_shown(text: str, environment: dict[str, str], says: str, tmp_path: Path) -> None:
    said = mistake(tmp_path, f'replicas: [{{name: a, url: "http://x", api_key_env: "{text}"}}]\n', **environment)
    assert said == f"luftpause.yaml:1: replicas[0].api_key_env: {says}"


def test_an_empty_variable_is_named(tmp_path: Path) -> None:
    assert mistake(tmp_path, "", LUFTPAUSE_DATAPLANE__PORT="") == "LUFTPAUSE_DATAPLANE__PORT: is empty; give it a value, or unset it"


@pytest.mark.parametrize("text", ["replicas:\r\n- name: a\r\n  url: http://x\r\n", "\ufeffreplicas: [{name: a, url: 'http://x'}]\n"])
def test_lines_as_windows_ends_them_and_its_mark_at_the_beginning_are_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_bytes(text.encode())
    assert [replica.url for replica in load(file, {}).replicas] == ["http://x"]


def test_a_tilde_in_a_path_is_the_home_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert read(tmp_path, "runtime: {state: ~/luftpause}\n").runtime.state == Path("/home/ann/luftpause")
    assert "can't be found: there is no such user" in mistake(tmp_path, "runtime: {state: ~nobody-of-that-name/luftpause}\n")


def test_a_file_that_never_ends_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="longer than"):
        load(Path("/dev/zero"), {})


def test_variables_that_set_nothing_are_found() -> None:
    environment = {
        "LUFTPAUSE_DATAPLANE_PORT": "1",
        "luftpause_log__level": "debug",
        "LUFTPAUSE_DATAPLANE__HOST": "::1",
        "LUFTPAUSE_TOKEN": "t",
        "LUFTPAUSE_RUNTIME_START_GRACE": "1",
    }
    assert overlooked(environment) == [
        ("LUFTPAUSE_DATAPLANE_PORT", "LUFTPAUSE_DATAPLANE__PORT"),
        ("luftpause_log__level", "LUFTPAUSE_LOG__LEVEL"),
    ]


def test_anchors_may_not_nest_without_end(tmp_path: Path) -> None:
    assert "nested deeper" in mistake(tmp_path, "log: &a\n  level: *a\n")


@pytest.mark.parametrize("depth", [40, 5_000, 100_000])
def test_brackets_may_not_nest_without_end(tmp_path: Path, depth: int) -> None:
    assert "nested deeper than 32 levels" in mistake(tmp_path, "replicas: " + "[" * depth + "]" * depth)
