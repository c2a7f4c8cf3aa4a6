"""Does the chart render what Kubernetes takes, and what the scheduler, the dataplanes and the runtime need there?"""

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from tests.deploy.schemas import helm_program, kubernetes_mistakes

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/luftpause"
KUBERNETES = ("1.29", "1.37")  # the oldest that Chart.yaml takes, the newest there is
REPLICAS = [
    {"name": "a", "url": "http://sglang-a.engines:30000"},
    {"name": "hosted", "url": "https://api.example.com/v1", "api_key_env": "KEY"},
]
EVERYTHING: dict[str, Any] = {
    "config": {"replicas": REPLICAS, "scheduler": {"policy": "guard"}, "log": {"level": "debug"}},
    "allowedHosts": ["luftpause.example.com"],
    "auth": {"token": "0123456789abcdef", "clusterToken": "fedcba9876543210", "tokensSecret": "callers", "tlsSecret": "grpc-tls"},
    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "hosted"}}}],
    "envFrom": [{"secretRef": {"name": "more"}}],
    "imagePullSecrets": [{"name": "pull"}],
    "scheduler": {"persistence": {"enabled": True, "storageClass": "fast"}, "nodeSelector": {"zone": "a"}},
    "dataplane": {
        "workers": 4,
        "tolerations": [{"key": "llm", "operator": "Exists"}],
        "service": {"type": "LoadBalancer", "annotations": {"example.com/idle": "4000"}},
    },
    "runtime": {"names": ["north", "south"], "persistence": {"storageClass": "fast"}},
    "valkey": {"enabled": True},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"agents": "yes"}}}], "status": [{"namespaceSelector": {}}]},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "dataplaneHost": "llm.example.com",
        "runtimeHost": "mcp.example.com",
        "tlsSecret": "web-tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
    },
}


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    arguments = (helm_program(), *arguments, "--values", "-")
    return subprocess.run(arguments, input=json.dumps(values or {}), capture_output=True, text=True, check=False)


def rendered(values: dict[str, Any] | None = None, version: str = "1.37.0", release: str = "lp") -> dict[str, dict[str, Any]]:
    """By kind and name, as in `StatefulSet/lp-luftpause-scheduler`."""
    found = [document for document in yaml.safe_load_all(_template(json.dumps(values or {}), version, release)) if document]
    named = {f"{document['kind']}/{document['metadata']['name']}": document for document in found}
    assert len(named) == len(found)
    return named


@functools.cache  # a rendering takes a tenth of a second or more
def _template(values: str, version: str, release: str) -> str:
    done = helm("template", release, str(CHART), "--namespace", "agents", "--kube-version", version, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(workload)["containers"]
    return only


def workloads(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in found.items() if each["kind"] in {"Deployment", "StatefulSet"}}


def config(found: dict[str, dict[str, Any]], workload: str, folder: Path) -> Config:
    """What the service in this workload reads: the ConfigMap with the variables of its container."""
    (maps,) = [each for name, each in found.items() if name.startswith("ConfigMap/")]
    path = folder / "luftpause.yaml"
    path.write_text(maps["data"]["luftpause.yaml"])
    fields = {"status.podIP": "10.1.2.3", "metadata.name": workload.partition("/")[2] + "-7d9f8c6b5d-x2v7k"}
    environment = dict[str, str]()
    for each in container(found[workload])["env"]:
        source = each.get("valueFrom", {})
        environment[each["name"]] = each.get("value") or fields.get(source.get("fieldRef", {}).get("fieldPath", ""), "redis://given:6379/0")
    return load(path, environment)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_finds_no_mistake(values: dict[str, Any]) -> None:
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_kubernetes_takes_every_object(values: dict[str, Any], version: str) -> None:
    found = rendered(values, f"{version}.0")
    assert len(found) > 10
    assert {name: wrong for name, document in found.items() if (wrong := kubernetes_mistakes(version, document))} == {}


def test_a_mistake_would_be_noticed() -> None:
    document = rendered()["StatefulSet/lp-luftpause-scheduler"]
    pod(document)["terminationGracePeriod"] = 30
    document["spec"]["replicas"] = "1"
    (first, second) = kubernetes_mistakes("1.37", document)
    assert "$.spec.replicas" in first + second
    assert "terminationGracePeriod" in first + second


def test_there_is_one_scheduler_and_never_a_second_during_an_update() -> None:
    spec = rendered(EVERYTHING)["StatefulSet/lp-luftpause-scheduler"]["spec"]
    assert spec["replicas"] == 1
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}  # of a StatefulSet: the old pod ends first
    assert not [name for name in rendered(EVERYTHING) if name.startswith("HorizontalPodAutoscaler/") and "dataplane" not in name]


def test_a_dataplane_may_finish_its_streams_before_it_is_killed(tmp_path: Path) -> None:
    found = rendered()
    deployment = found["Deployment/lp-luftpause-dataplane"]
    grace = config(found, "Deployment/lp-luftpause-dataplane", tmp_path).dataplane.stop_grace_seconds
    assert grace == 600
    assert pod(deployment)["terminationGracePeriodSeconds"] == 630
    assert container(deployment)["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    shorter = rendered({"dataplane": {"stopGraceSeconds": 60}})["Deployment/lp-luftpause-dataplane"]
    assert pod(shorter)["terminationGracePeriodSeconds"] == 90


def test_held_streams_send_a_sign_of_life(tmp_path: Path) -> None:
    assert config(rendered(), "Deployment/lp-luftpause-dataplane", tmp_path).dataplane.hold_keepalive_s == 15


def test_dataplanes_scale_and_each_has_the_name_of_its_pod(tmp_path: Path) -> None:
    found = rendered()
    scaler = found["HorizontalPodAutoscaler/lp-luftpause-dataplane"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 10)
    assert "replicas" not in found["Deployment/lp-luftpause-dataplane"]["spec"]  # else every upgrade would undo the scaling
    read = config(found, "Deployment/lp-luftpause-dataplane", tmp_path)
    assert read.dataplane.name == "lp-luftpause-dataplane-7d9f8c6b5d-x2v7k"
    fixed = rendered({"dataplane": {"autoscaling": {"enabled": False}, "replicas": 3}})
    assert fixed["Deployment/lp-luftpause-dataplane"]["spec"]["replicas"] == 3
    assert "HorizontalPodAutoscaler/lp-luftpause-dataplane" not in fixed


def test_the_longest_release_name_leaves_room_for_the_name_of_a_dataplanes_worker() -> None:
    (name,) = [each for each in rendered(release="r" * 53) if each.startswith("Deployment/")]
    assert len(name.partition("/")[2] + "-7d9f8c6b5d-x2v7k" + "-63") <= 64


def test_a_runtime_keeps_its_journal(tmp_path: Path) -> None:
    found = rendered()
    workload = found["StatefulSet/lp-luftpause-runtime"]
    assert workload["spec"]["replicas"] == 1
    (claim,) = workload["spec"]["volumeClaimTemplates"]
    (mount,) = [each for each in container(workload)["volumeMounts"] if each["name"] == claim["metadata"]["name"]]
    state = config(found, "StatefulSet/lp-luftpause-runtime", tmp_path).runtime.state
    assert state.is_relative_to(mount["mountPath"])


def test_each_of_several_runtimes_has_a_name_a_service_and_a_journal_of_its_own(tmp_path: Path) -> None:
    found = rendered(EVERYTHING)
    for name in ("north", "south"):
        workload = found[f"StatefulSet/lp-luftpause-runtime-{name}"]
        service = found[f"Service/lp-luftpause-runtime-{name}"]
        assert service["spec"]["selector"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        read = config(found, f"StatefulSet/lp-luftpause-runtime-{name}", tmp_path)
        assert read.runtime.name == name
        assert f"lp-luftpause-runtime-{name}.agents.svc" in read.runtime.allowed_hosts
    assert "StatefulSet/lp-luftpause-runtime" not in found


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_services_find_each_other_by_name_and_serve_it(values: dict[str, Any], tmp_path: Path) -> None:
    found = rendered(values)
    read = config(found, "Deployment/lp-luftpause-dataplane", tmp_path)
    host, _, port = read.dataplane.scheduler.partition(":")
    ports = {each["name"]: each["port"] for each in found[f"Service/{host}"]["spec"]["ports"]}
    assert ports == {"grpc": int(port), "http": read.scheduler.http_port} == {"grpc": 5000, "http": 5001}
    url = re.fullmatch(r"http://([a-z-]+):(\d+)", read.runtime.dataplane)
    assert url
    assert found[f"Service/{url[1]}"]["spec"]["ports"][0]["port"] == int(url[2])
    assert {url[1], "10.1.2.3", "localhost"} <= set(read.dataplane.allowed_hosts)  # the address: Prometheus asks there
    assert {host, "10.1.2.3"} <= set(read.scheduler.allowed_hosts)
    assert {read.scheduler.host, read.dataplane.host, read.runtime.host} == {"0.0.0.0"}


def test_a_service_finds_its_pods() -> None:
    found = rendered(EVERYTHING)
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(found).values()]
    for name, service in found.items():
        if service["kind"] == "Service":
            chosen = [each for each in labels if service["spec"]["selector"].items() <= each.items()]
            assert len(chosen) == 1, name


def test_probes_ask_with_a_host_that_is_served() -> None:
    found = rendered()
    for name, workload in workloads(found).items():
        only = container(workload)
        ports = {each["name"] for each in only["ports"]}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = only[kind]["httpGet"]
            assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}], name
            assert probe["port"] in ports
    assert container(found["Deployment/lp-luftpause-dataplane"])["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container(found["Deployment/lp-luftpause-dataplane"])["livenessProbe"]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, True),
        ({"auth": {"existingSecret": "tokens"}}, False),
        ({"auth": {"token": "t"}, "config": {"auth": {"metrics_open": True}}}, True),
        ({"metrics": {"annotations": False}}, False),
    ],
)
def test_a_prometheus_finds_the_pods_whose_metrics_it_may_read(values: dict[str, Any], found: bool) -> None:
    for workload in workloads(rendered(values)).values():
        annotations = workload["spec"]["template"]["metadata"]["annotations"]
        told = {name.removeprefix("prometheus.io/"): value for name, value in annotations.items() if name.startswith("prometheus.io/")}
        ports = {str(port["containerPort"]) for port in container(workload)["ports"]}
        assert (told.get("scrape"), told.get("path")) == (("true", "/metrics") if found else (None, None))
        assert not found or told["port"] in ports - {"5000"}  # that one speaks gRPC


def test_no_pod_has_privileges_or_a_key_to_the_cluster() -> None:
    for name, workload in workloads(rendered(EVERYTHING)).items():
        spec = pod(workload)
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        security = container(workload)["securityContext"]
        assert security == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_tokens_are_in_secrets_only() -> None:
    done = helm("template", "lp", str(CHART), values=EVERYTHING)
    holding = [document for document in yaml.safe_load_all(done.stdout) if document and "0123456789abcdef" in str(document)]
    assert [document["kind"] for document in holding] == ["Secret"]
    for workload in workloads(rendered({"auth": {"existingSecret": "mine"}})).values():
        assert container(workload)["envFrom"] == [{"secretRef": {"name": "mine"}}]
    assert not [name for name in rendered({"auth": {"existingSecret": "mine"}}) if name.startswith("Secret/")]


def test_tls_and_callers_tokens_come_from_secrets(tmp_path: Path) -> None:
    found = rendered(EVERYTHING)
    for name, workload in workloads(found).items():
        if "valkey" in name:
            continue
        read = config(found, name, tmp_path)
        mounted = [each["mountPath"] for each in container(workload)["volumeMounts"]]
        for path in (read.auth.tls_cert, read.auth.tls_key, read.auth.tls_ca, read.auth.tokens_file):
            assert path is not None
            assert str(path.parent) in mounted
        assert not read.auth.insecure
    assert config(rendered(), "StatefulSet/lp-luftpause-scheduler", tmp_path).auth.insecure


def test_what_config_says_wins_and_the_rest_stays(tmp_path: Path) -> None:
    values = {"config": {"replicas": REPLICAS, "dataplane": {"stop_grace_seconds": 5}, "runtime": {"max_tokens": 9}}}
    read = config(rendered(values), "StatefulSet/lp-luftpause-runtime", tmp_path)
    assert [replica.name for replica in read.replicas] == ["a", "hosted"]
    assert (read.dataplane.stop_grace_seconds, read.dataplane.hold_keepalive_s, read.runtime.max_tokens) == (5, 15, 9)
    assert read.runtime.dataplane == "http://lp-luftpause-dataplane:8080"


def test_replicas_change_without_a_restart_and_other_settings_with_one() -> None:
    def sums(values: dict[str, Any]) -> set[str]:
        return {
            each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for each in workloads(rendered({"config": values})).values()
        }

    before = sums({"replicas": []})
    assert len(before) == 1
    assert sums({"replicas": REPLICAS}) == before
    assert sums({"replicas": [], "scheduler": {"policy": "guard"}}) != before


@pytest.mark.parametrize(
    ("values", "store"),
    [
        ({}, "memory"),
        ({"valkey": {"enabled": True}}, "redis://lp-luftpause-valkey:6379/0"),
        ({"redisSecret": {"name": "quota-store"}}, "redis://given:6379/0"),
    ],
)
def test_the_governor_keeps_quotas_where_it_is_told(values: dict[str, Any], store: str, tmp_path: Path) -> None:
    found = rendered(values)
    assert config(found, "StatefulSet/lp-luftpause-scheduler", tmp_path).governor.store == store
    assert ("StatefulSet/lp-luftpause-valkey" in found) is ("valkey" in values)


def test_only_dataplanes_and_runtimes_reach_the_control_plane() -> None:
    found = rendered(EVERYTHING)
    policy = found["NetworkPolicy/lp-luftpause-scheduler"]["spec"]
    (grpc,) = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "grpc"}]]
    peers = [peer["podSelector"]["matchLabels"] for peer in grpc["from"]]
    allowed = {
        name for name, each in workloads(found).items()
        if any(labels.items() <= each["spec"]["template"]["metadata"]["labels"].items() for labels in peers)
    }  # fmt: skip
    assert allowed == {
        "Deployment/lp-luftpause-dataplane", "StatefulSet/lp-luftpause-runtime-north", "StatefulSet/lp-luftpause-runtime-south",
    }  # fmt: skip
    assert [name for name in rendered({"networkPolicy": {"enabled": False}}) if name.startswith("NetworkPolicy/")] == []


def test_the_ingress_leads_to_the_proxy_and_to_mcp() -> None:
    spec = rendered({"ingress": {"enabled": True, "dataplaneHost": "llm.example.com", "runtimeHost": "mcp.example.com"}})
    rules = spec["Ingress/lp-luftpause"]["spec"]["rules"]
    led = {rule["host"]: rule["http"]["paths"][0]["backend"]["service"]["name"] for rule in rules}
    assert led == {"llm.example.com": "lp-luftpause-dataplane", "mcp.example.com": "lp-luftpause-runtime"}
    assert set(led.values()) <= {name.partition("/")[2] for name in spec if name.startswith("Service/")}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"datplane": {}}, "datplane"),
        ({"dataplane": {"replics": 3}}, "replics"),
        ({"dataplane": {"workers": 0}}, "workers"),
        ({"config": {"replica": []}}, "replica"),
        ({"config": {"replicas": [{"name": "a"}]}}, "url"),
        ({"runtime": {"names": ["North"]}}, "names"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"valkey": {"enabled": True}, "redisSecret": {"name": "x"}}, "not both"),
        ({"ingress": {"enabled": True}}, "ingress.dataplaneHost"),
        ({"nameOverride": "Foo_Bar"}, "nameOverride"),
        ({"fullnameOverride": "-lp"}, "fullnameOverride"),
        ({"dataplane": {"autoscaling": {"min": 5, "max": 2}}}, "dataplane.autoscaling.min is more"),
        ({"config": {"dataplane": {"port": 9000}}}, "config.dataplane.port"),
        ({"config": {"scheduler": {"host": "127.0.0.1"}}}, "config.scheduler.host"),
        ({"config": {"runtime": {"port": 9000}}}, "config.runtime.port"),
    ],
)
def test_a_mistake_in_the_values_is_refused_by_name(values: dict[str, Any], said: str) -> None:
    done = helm("template", "lp", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(defaults) | {"global"} == set(schema["properties"])
    for name, part in defaults.items():
        if isinstance(part, dict) and name != "config":
            assert set(part) == set(schema["properties"][name]["properties"]), name


def test_the_notes_say_where_it_is_and_what_is_missing() -> None:
    notes = helm("install", "lp", str(CHART), "--namespace", "agents", "--dry-run=client", values={}).stdout
    assert "http://lp-luftpause-dataplane.agents:8080/v1" in notes
    assert "config.replicas is empty" in notes
    assert "auth is not set" in notes
    complete = helm("install", "lp", str(CHART), "--dry-run=client", values=EVERYTHING).stdout
    assert "is empty" not in complete
    assert "auth is not set" not in complete
    assert "lp-luftpause-runtime-north" in complete
