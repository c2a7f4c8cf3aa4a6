"""Is a person told what a configuration that is right does beside what it says?"""

from pathlib import Path
from typing import Any

import pytest

from luftpause.cli.config_notes import notes
from luftpause.kit.config import Config

OWN_PAGE = "load_from names http://r/metrics, its own page; the engines behind an SGLang router are on /engine_metrics"
UNCAPPED = "its turns are not capped: its load is not asked (load: none) and it has no max_in_flight"
UNKNOWN_API = "apis names message, which no request asks for; known are chat, completions, responses, messages, embeddings"
BOUNDED = {"name": "a", "url": "http://r", "max_in_flight": 8}


def of(*replicas: dict[str, Any], env: dict[str, str] | None = None, **scheduler: Any) -> list[str]:
    return notes(Config.model_validate({"replicas": replicas, "scheduler": scheduler}), env or {})


@pytest.mark.parametrize(
    "replica",
    [
        {"name": "a", "url": "http://r"},
        {"name": "a", "url": "http://r", "load": "vllm", "models": ["m"], "apis": ["chat", "messages"]},
        {"name": "a", "url": "http://r", "load_from": ["http://r/engine_metrics"]},
        {"name": "a", "url": "https://r", "load": "none", "max_in_flight": 4, "api_key_env": "K"},
        {"name": "a", "url": "http://127.0.0.1:1", "api_key_env": "K"},
        {"name": "a", "url": "http://sglang-a:30000", "api_key_env": "K"},
        {"name": "a", "url": "http://10.0.0.7:1", "api_key_env": "K"},
        {"name": "a", "url": "http://r", "kind": "classifier", "load": "none"},
    ],
)
def test_nothing_is_said_of_what_does_what_it_says(replica: dict[str, Any]):
    assert of(replica, env={"K": "k"}) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"load": "none", "max_in_flight": None}, UNCAPPED),
        ({"load": "none", "load_from": ["http://x"]}, "load_from is not asked, since load is none"),
        ({"load_from": ["http://r"]}, OWN_PAGE),
        ({"load_from": ["http://r/metrics/"], "url": "http://r/v1"}, OWN_PAGE),
        ({"load_from": ["http://x", "http://y"]}, "its load is the sum of 2 pages, and unknown while one of them can't be read"),
        ({"models": ["m", "gpt-*"]}, "takes any model that fits gpt-*; for one that it does not know its own error is passed on"),
        ({"models": []}, "serves no model (models: []); leave models out to have them read from its /v1/models"),
        ({"apis": ["chat", "message"]}, UNKNOWN_API),
        ({"apis": []}, "apis: [] is taken as all; leave it out to have them found out, or name some"),
        ({"kind": "classifier", "apis": ["chat"]}, "apis says nothing for a classifier, which takes /v1/decide only"),
        ({"api_key_env": "NONE"}, "the environment variable NONE (api_key_env) is not set here; set it where the services run"),
    ],
)  # fmt: skip
def test_what_would_surprise_is_said(more: dict[str, Any], said: str):
    url = {"url": "https://r"} if "api_key_env" in more else {}
    assert of({**BOUNDED, **url, **more}) == [f"a: {said}"]


def test_a_pattern_of_another_kind_is_explained():
    first, second = of({**BOUNDED, "models": ["gpt-.*"]})
    assert first.startswith("a: takes any model that fits gpt-.*")
    assert second == "a: in gpt-.* only `*` is special and stands for anything; all else stands for itself"


def test_a_key_over_http_into_the_world_is_said():
    assert of({**BOUNDED, "url": "http://api.example.com:1", "api_key_env": "K"}, env={"K": "k"}) == [
        "a: its key goes to api.example.com unencrypted; write https:// where that can be spoken"
    ]


def test_two_names_for_one_place_are_said():
    assert of({**BOUNDED, "name": "b", "url": "http://r/v1/"}, BOUNDED) == [
        "b, a: have the same url http://r; each counts its turns as if it were alone there"
    ]


def test_recording_says_where_and_what(tmp_path: Path):
    said = f"scheduler.record: every event is appended to logs in {tmp_path / 'new'}, run ids and callers as keyed hashes"
    assert of(record=str(tmp_path / "new")) == [said]
    assert of(record=str(tmp_path / "new"), record_clear=True) == [said.replace("keyed hashes", "they are")]
    assert of(record_clear=True) == ["scheduler.record_clear has no effect without scheduler.record"]
    (tmp_path / "file").touch()
    assert of(record=str(tmp_path / "file"))[1] == f"scheduler.record: {tmp_path / 'file'} is no directory"


def test_one_page_twice_is_a_mistake():
    with pytest.raises(ValueError, match="names http://x:1 twice; its load would count double"):
        of({**BOUNDED, "load_from": ["http://x:1", "http://y", "http://x:1/metrics"]})


def test_a_tokens_file_that_can_not_be_used_as_it_is_is_told(tmp_path: Path):
    file = tmp_path / "tokens"
    config = Config.model_validate({"auth": {"tokens_file": str(file)}})
    both = {"LUFTPAUSE_TOKEN": "a" * 32, "LUFTPAUSE_CLUSTER_TOKEN": "b" * 32}
    assert notes(config, both) == [f"auth.tokens_file: {file} can't be read by this user, or is not there"]
    file.write_text("alice: " + "c" * 32)
    assert notes(config, both) == []
    needs = "auth.tokens_file needs {} too; not set here, set it where the services run"
    assert notes(config, {"LUFTPAUSE_TOKEN": "a" * 32}) == [needs.format("LUFTPAUSE_CLUSTER_TOKEN")]
    assert notes(config, {}) == [needs.format("LUFTPAUSE_TOKEN and LUFTPAUSE_CLUSTER_TOKEN")]


def test_a_variable_that_sets_nothing_is_said_and_one_of_compose_is_said_to_be_its():
    env = {"LUFTPAUSE_DATAPLANE_PORT": "9090", "LUFTPAUSE_SCHEDULER_POLICY": "original", "LUFTPAUSE_STATUS_PORT": "5001"}
    compose, ours = of(BOUNDED, env=env)
    assert compose.startswith("LUFTPAUSE_DATAPLANE_PORT sets nothing here, only the port that Compose publishes")
    assert compose.endswith("; LUFTPAUSE_DATAPLANE__PORT would")
    assert ours == "LUFTPAUSE_SCHEDULER_POLICY sets nothing; LUFTPAUSE_SCHEDULER__POLICY would"
