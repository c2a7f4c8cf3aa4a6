"""Do the compose files keep what the docs promise: names, ports on this machine only, no privileges, configurations that load?

Everything here is read from the files; `tools/compose_test.sh` runs them on a Docker engine.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from luftpause.kit.config_file import load
from tests.deploy.schemas import mistakes

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {"scheduler", "dataplane", "runtime", "fake-engine-a", "fake-engine-b", "fake-mcp"}
OVERRIDES = ("ollama", "testbed", "otel", "runpod")
FILES = ("compose.yaml", *(f"compose.{each}.yaml" for each in OVERRIDES))
SETS = {
    "fakes": ("compose.yaml",),
    "ollama": ("compose.yaml", "compose.ollama.yaml"),
    "testbed": ("compose.yaml", "compose.testbed.yaml"),
    "runpod": ("compose.yaml", "compose.testbed.yaml", "compose.runpod.yaml"),
}
GIVEN = {"RUNPOD_POD_ID": "abc123", "RUNPOD_KEY": "secret-key-of-the-pod"}
OUTSIDE = {"host.docker.internal", "abc123-8000.proxy.runpod.net"}
DOCS = (ROOT / "docs/operations.md").read_text()


def services(*files: str) -> dict[str, dict[str, Any]]:
    """By name, each with what later files add to it; lists of volumes by their target, as compose merges them."""
    merged: dict[str, dict[str, Any]] = {}
    for file in files:
        for name, service in yaml.safe_load((ROOT / file).read_text())["services"].items():
            before = merged.setdefault(name, {})
            for key, value in service.items():
                before[key] = {**before.get(key, {}), **value} if isinstance(value, dict) and key in before else value
    return merged


def filled(text: str, given: dict[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `${NAME:?message}` as compose fills them."""
    return re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", lambda m: given.get(m[1]) or (m[3] if m[2] == "-" else ""), text)


def environment(service: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    return {key: filled(str(value), given) for key, value in service.get("environment", {}).items()}


def port_of(service: dict[str, Any]) -> int:
    """The one that its health check asks."""
    return int(next(word for word in service["healthcheck"]["test"] if word.isdecimal()))


def test_the_services_have_the_names_that_the_documented_commands_use() -> None:
    assert set(services("compose.yaml")) == SERVICES


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_one_that_compose_takes(file: str) -> None:
    assert mistakes("compose", yaml.safe_load((ROOT / file).read_text())) == []


def test_a_key_that_compose_does_not_know_would_be_noticed() -> None:
    (found,) = mistakes("compose", {"services": {"a": {"image": "x", "read-only": True}}})
    assert "read-only" in found


@pytest.mark.parametrize("file", FILES)
def test_published_ports_are_open_on_this_machine_only(file: str) -> None:
    ports = [port for service in services(file).values() for port in service.get("ports", ())]
    assert [port for port in ports if not str(port).startswith("127.0.0.1:")] == []


def test_the_proxy_mcp_the_status_page_and_jaeger_are_published() -> None:
    found = services("compose.yaml", "compose.otel.yaml")
    published = {name: filled(port, {}) for name, service in found.items() for port in service.get("ports", ())}
    assert published == {
        "scheduler": "127.0.0.1:5001:5001",
        "dataplane": "127.0.0.1:8080:8080",
        "runtime": "127.0.0.1:7000:7000",
        "jaeger": "127.0.0.1:16686:16686",
    }


@pytest.mark.parametrize("name", [*sorted(SERVICES), "wikipedia-mcp", "jaeger"])
def test_a_service_has_no_privileges_and_no_disk(name: str) -> None:
    service = services(*FILES)[name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "user" not in service  # the images' own: no root


@pytest.mark.parametrize("file", FILES)
def test_every_service_that_a_file_brings_says_whether_it_is_well(file: str) -> None:
    brought = {name: service for name, service in services(file).items() if "image" in service}
    assert {name for name, service in brought.items() if not service.get("healthcheck", {}).get("test")} == set()


def test_all_run_one_image_that_a_clone_can_build() -> None:
    for service in services("compose.yaml").values():
        assert filled(service["image"], {}) == "ghcr.io/luftpause/luftpause:latest"
        assert (
            filled(service["image"], {"LUFTPAUSE_REGISTRY": "r.example/x", "LUFTPAUSE_VERSION": "0.2.0"}) == "r.example/x/luftpause:0.2.0"
        )

    built = {name: service["build"] for name, service in services("compose.yaml").items() if "build" in service}
    assert built == {"scheduler": "."}  # once: compose would build and tag the same image for each


def test_services_wait_for_what_they_need_and_not_for_fakes_that_a_command_leaves_out() -> None:
    found = services("compose.yaml")
    assert {name: set(service["depends_on"]) for name, service in found.items() if "depends_on" in service} == {
        "dataplane": {"scheduler"},
        "runtime": {"dataplane"},
    }
    assert found["dataplane"]["healthcheck"]["test"][-1] == "/ready"


def test_the_dataplane_may_finish_its_streams() -> None:
    service = services("compose.yaml")["dataplane"]
    config = load(ROOT / "deploy/compose/fakes/luftpause.yaml", environment(service, {}))
    assert int(service["stop_grace_period"].removesuffix("s")) > config.dataplane.stop_grace_seconds


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("service", ["scheduler", "dataplane", "runtime"])
def test_the_configuration_of_a_set_of_files_loads_in_each_service(name: str, service: str) -> None:
    found = services(*SETS[name])
    mounted = [filled(str(volume), {}) for volume in found[service]["volumes"]]
    assert f"./deploy/compose/{name}:/etc/luftpause:ro" in mounted
    config = load(ROOT / "deploy/compose" / name / "luftpause.yaml", environment(found[service], GIVEN))
    assert (config.scheduler.host, config.dataplane.host, config.runtime.host) == ("0.0.0.0",) * 3
    assert config.dataplane.scheduler == f"scheduler:{config.scheduler.grpc_port}"
    assert config.runtime.dataplane == f"http://dataplane:{config.dataplane.port}"
    assert {"localhost", "127.0.0.1", "dataplane"} <= set(config.dataplane.allowed_hosts)
    assert {"localhost", "127.0.0.1", "runtime"} <= set(config.runtime.allowed_hosts)


@pytest.mark.parametrize("name", SETS)
def test_every_address_in_a_configuration_is_a_service_and_its_port(name: str) -> None:
    found = services(*SETS[name])
    config = load(ROOT / "deploy/compose" / name / "luftpause.yaml", environment(found["dataplane"], GIVEN))
    urls = [replica.url for replica in config.replicas] + [server.url or "" for server in config.runtime.servers.values()]
    assert urls
    for host, port in ((urlsplit(url).hostname or "", urlsplit(url).port) for url in urls):
        if host not in OUTSIDE:
            assert port == (30_000 if host.startswith("sglang") else port_of(found[host])), host


def test_a_health_check_asks_the_port_on_which_its_service_listens() -> None:
    found = services("compose.yaml")
    config = load(ROOT / "deploy/compose/fakes/luftpause.yaml", environment(found["scheduler"], {}))
    listens = {"scheduler": config.scheduler.http_port, "dataplane": config.dataplane.port, "runtime": config.runtime.port}
    assert {name: port_of(found[name]) for name in listens} == listens


def test_the_key_of_a_pod_is_where_it_is_sent_from_and_nowhere_else() -> None:
    found = services(*SETS["runpod"])
    assert {name for name, service in found.items() if "RUNPOD_KEY" in service.get("environment", {})} == {"scheduler", "dataplane"}
    config = load(ROOT / "deploy/compose/runpod/luftpause.yaml", environment(found["runtime"], GIVEN))
    (pod,) = [replica for replica in config.replicas if replica.name == "runpod"]
    assert (pod.url, pod.api_key_env) == ("https://abc123-8000.proxy.runpod.net/v1", "RUNPOD_KEY")


def test_ollamas_model_can_be_chosen_and_has_a_default() -> None:
    service = services(*SETS["ollama"])["runtime"]
    path = ROOT / "deploy/compose/ollama/luftpause.yaml"
    for given, model in (({}, "llama3.2:1b"), ({"OLLAMA_MODEL": "qwen3:4b"}, "qwen3:4b")):
        config = load(path, environment(service, given))
        assert config.runtime.default_model == model
        assert [replica.models for replica in config.replicas] == [(model,)]
    assert service["extra_hosts"] == ["host.docker.internal:host-gateway"]


def test_sglang_tells_its_load_its_cache_and_heeds_priorities() -> None:
    found = services("compose.testbed.yaml")
    for name in ("sglang-a", "sglang-b"):
        assert {"--enable-metrics", "--enable-cache-report", "--enable-priority-scheduling"} <= set(found[name]["command"])


def test_the_three_services_send_their_spans_to_jaeger() -> None:
    found = services("compose.otel.yaml")
    for name in ("scheduler", "dataplane", "runtime"):
        assert found[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://jaeger:4317"


def commands() -> list[tuple[set[str], set[str]]]:
    """Files and services that each `docker compose … up` in the docs and the files' own heads names."""
    heads = "\n".join(line.removeprefix("#") for file in FILES for line in (ROOT / file).read_text().splitlines() if line.startswith("#"))
    lines = re.findall(r"docker compose ([^\n`]*?up -d[^\n`]*)", DOCS + heads)
    found = [(set(re.findall(r"-f (\S+)", line)), set(line.partition("up -d")[2].split()) - {"--build", "--wait"}) for line in lines]
    return [(files or {"compose.yaml"}, names) for files, names in found]


def test_every_documented_command_names_files_and_services_that_are_there() -> None:
    assert len(commands()) >= 6
    for files, names in commands():
        assert files <= set(FILES)
        assert names <= set(services(*sorted(files))), files


def test_every_override_is_documented() -> None:
    named = set[str]().union(*(files for files, _ in commands()))
    assert set(FILES) <= named


def test_the_image_runs_as_nobody_special_and_needs_no_frontend_from_a_registry() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in last
    assert 'ENTRYPOINT ["luftpause"]' in last
    assert not lines[0].startswith("# syntax=")


def test_what_the_image_is_built_from_is_in_its_context() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert {"services", "pyproject.toml"} <= sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(source == each or source.startswith(f"{each}/") or each.startswith(f"{source}/") for each in kept), source
