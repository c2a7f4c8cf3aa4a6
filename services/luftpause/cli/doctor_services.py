"""Do the three services run, in one version, and do they reach each other and the tool servers?"""

import asyncio
from typing import Any, Final, cast

import httpx
from msgspec import Struct

from luftpause import __version__
from luftpause.cli import tokens
from luftpause.cli.doctor_findings import Finding, fault, note, ok
from luftpause.cli.doctor_http import Answer, get
from luftpause.cli.doctor_local import taken
from luftpause.cli.doctor_replicas import skewed
from luftpause.cli.doctor_unreached import in_container
from luftpause.kit.auth import CLUSTER_TOKEN, TOKEN, from_environment, is_loopback
from luftpause.kit.config import Config, RuntimeConfig
from luftpause.runtime.tools.toolbox import Tools

ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
TOOLS_SECONDS_MAX: Final = 15.0
NO_REPLICAS: Final = note("replicas", "none is configured: no turn can go anywhere", "name one under `replicas:` in luftpause.yaml")


class Service(Struct, frozen=True):
    name: str
    host: str
    port: int
    option: str  # its port's name in the configuration

    @property
    def url(self) -> str:
        host = ANYWHERE.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


async def examine(config: Config, client: httpx.AsyncClient) -> tuple[list[Finding], list[str]]:
    """Also the names of those that run. Where no replica is configured, those of the scheduler that runs are told."""
    services = (
        Service("scheduler", config.scheduler.host, config.scheduler.http_port, "scheduler.http_port"),
        Service("dataplane", config.dataplane.host, config.dataplane.port, "dataplane.port"),
        Service("runtime", config.runtime.host, config.runtime.port, "runtime.port"),
    )
    answers = await asyncio.gather(*(get(client, f"{service.url}/health") for service in services))
    findings: list[Finding] = []
    running: list[str] = []
    for service, answer in zip(services, answers, strict=True):
        found, runs = _of(service, answer)
        findings += found
        running += [service.name] * runs
    if "dataplane" in running:
        findings += await _of_dataplane(services[1].url, config, client)
    if "scheduler" in running:
        findings += await _of_scheduler(services[0].url, client, tell_replicas=not config.replicas)
    elif config.scheduler.grpc_port and taken(config.scheduler.host, config.scheduler.grpc_port):
        findings.append(_in_use("scheduler", config.scheduler.grpc_port, "scheduler.grpc_port"))
    if not config.replicas and "scheduler" not in running:
        findings.append(NO_REPLICAS)
    return findings, running


def _of(service: Service, answer: Answer) -> tuple[list[Finding], bool]:
    """What it says of itself, and whether it runs."""
    if not service.port:
        return [], False
    if answer.refused:
        if taken(service.host, service.port):
            return [_in_use(service.name, service.port, service.option)], False
        mend = "does it run in a container of its own? `docker compose ps` shows it" if in_container() else "`luftpause up` starts it"
        return [note(service.name, f"does not run at {service.url}", mend)], False
    told = cast("dict[str, Any]", answer.json() or {})
    if answer.status != 200 or told.get("service") != service.name:
        return [_in_use(service.name, service.port, service.option, str(told.get("service") or ""))], False
    findings = skewed(service.name, answer)
    version = told.get("version")
    if version != __version__:
        findings.append(
            fault(
                service.name,
                f"runs version {version}, and this command is version {__version__}",
                "update both, and start the service again; all services need one version",
            )
        )
    return findings or [ok(service.name, f"runs at {service.url}, version {version}")], True


def _in_use(name: str, port: int, option: str, by: str = "") -> Finding:
    taken_by = f"luftpause's {by}" if by else "another program"
    return fault(name, f"port {port} is taken by {taken_by}", f"stop that (`ss -ltnp 'sport = :{port}'` shows it), or set {option}")


async def _of_dataplane(url: str, config: Config, client: httpx.AsyncClient) -> list[Finding]:
    told = cast("dict[str, Any]", (await get(client, f"{url}/ready")).json() or {})
    scheduler = cast("dict[str, Any]", told.get("scheduler") or {})
    if scheduler.get("connected", True):
        return []
    mend = "start the scheduler, and correct dataplane.scheduler; both need the same token"
    return [fault("dataplane", f"is not connected to the scheduler at {config.dataplane.scheduler}: new turns wait", mend)]


async def _of_scheduler(url: str, client: httpx.AsyncClient, *, tell_replicas: bool) -> list[Finding]:
    token = (from_environment(CLUSTER_TOKEN) or from_environment(TOKEN)) if is_loopback(httpx.URL(url).host) else ""
    answer = await get(client, f"{url}/status", tokens.headers(token))
    if answer.status == 401:
        what = "refuses the token of this environment" if token else "wants a token, and none is set here"
        return [fault("scheduler", what, f"set {CLUSTER_TOKEN} (or {TOKEN}) as it is where the scheduler runs")]
    told = cast("dict[str, Any]", answer.json() or {})
    if answer.status != 200:
        return []
    found = _as_told(cast("dict[str, Any]", told.get("state") or {})) if tell_replicas else []
    if not told.get("sessions"):
        mend = "start one; its dataplane.scheduler names this scheduler's gRPC port"
        found.append(note("scheduler", "no dataplane is connected to it", mend))
    return found


def _as_told(state: dict[str, Any]) -> list[Finding]:
    """The replicas of a scheduler whose configuration is another one: of `luftpause up`, or of a file that was not named."""
    replicas = cast("list[dict[str, Any]]", state.get("replicas") or [])
    if not replicas:
        return [NO_REPLICAS]
    mend = "`luftpause doctor --config FILE` with the file that the scheduler was given looks at it more closely"
    return [
        ok(f"replica {each['name']}", "healthy, as the running scheduler says")
        if each["health"] == "healthy"
        else fault(f"replica {each['name']}", f"{each['health']}, as the running scheduler says", mend)
        for each in replicas
    ]


async def tool_servers(config: RuntimeConfig) -> list[Finding]:
    """Each is connected to and asked for its tools, as the runtime does it."""
    if not config.servers:
        return []
    async with Tools(config) as tools:
        await tools.ready(TOOLS_SECONDS_MAX)
        states = tools.servers()
    findings: list[Finding] = []
    for state in states:
        what = f"tool server {state.name}"
        if not state.connected:
            server = config.servers[state.name]
            mend = f"is {server.url} its address, and does it run?" if server.url else f"does `{server.command}` run here?"
            findings.append(fault(what, state.error or "is not connected", f"{mend} See runtime.servers.{state.name}"))
            continue
        findings.append(ok(what, f"{state.tools} tools"))
        findings += [note(what, each) for each in state.notes]
    return findings
