"""What belongs to a whole luftpause on one machine, and in which order is it started?

Each part announces where it listens and the next one's configuration is made from that, so that free ports work everywhere.
"""

import asyncio
import contextlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

import yaml

from luftpause.cli import weights
from luftpause.cli.children import Children
from luftpause.cli.choices import Engine
from luftpause.kit import serve
from luftpause.kit.config import Config, ReplicaConfig, UpstreamConfig
from luftpause.kit.errors import ConfigError, LuftpauseError

FAKE_ENGINES: Final = ("engine-a", "engine-b")
FAKE_TOOLS: Final = "fake-mcp"
LLAMA_ENGINE: Final = "smollm2"


@dataclass(frozen=True)
class Plan:
    """What to start. `engine` None: the replicas and tool servers are those of `config`."""

    config: Config
    engine: Engine | None
    folder: Path  # for the configuration files of the parts; may hold secrets, so it must be private


@dataclass(frozen=True)
class Addresses:
    """Where a started stack listens; URLs without a trailing slash."""

    proxy: str
    mcp: str
    status: str
    engines: dict[str, str]

    @property
    def base_url(self) -> str:
        return f"{self.proxy}/v1"

    def as_announced(self) -> dict[str, str]:
        return {"http": self.proxy, "base_url": self.base_url, "mcp": self.mcp, "status": self.status, **self.engines}


DEFAULT_ADDRESSES: Final = Addresses(
    proxy="http://127.0.0.1:8080", mcp="http://127.0.0.1:7000/mcp", status="http://127.0.0.1:5001", engines={}
)


def with_state(config: Config, state: Path) -> Config:
    """The same configuration with another state directory."""
    return _with(config, "runtime", state=state.absolute())


def with_free_ports(config: Config) -> Config:
    """The same configuration on ports that the operating system chooses."""
    return with_ports(config, dataplane=0, scheduler=0, status=0, runtime=0)


def with_ports(
    config: Config, *, dataplane: int | None = None, scheduler: int | None = None, status: int | None = None, runtime: int | None = None
) -> Config:
    """The same configuration with other ports; None keeps one."""
    config = _with(config, "dataplane", port=dataplane)
    config = _with(config, "scheduler", grpc_port=scheduler, http_port=status)
    return _with(config, "runtime", port=runtime)


def _with(config: Config, section: str, **values: object) -> Config:
    changed = {key: value for key, value in values.items() if value is not None}
    return config.model_copy(update={section: getattr(config, section).model_copy(update=changed)})


def check_ports(config: Config) -> None:
    """Raises LuftpauseError (`port_in_use`) that names the port and the option which changes it."""
    wanted = (
        (config.dataplane.host, config.dataplane.port, "--dataplane-port"),
        (config.scheduler.host, config.scheduler.grpc_port, "--scheduler-port"),
        (config.scheduler.host, config.scheduler.http_port, "--status-port"),
        (config.runtime.host, config.runtime.port, "--runtime-port"),
    )
    with contextlib.ExitStack() as sockets:
        for host, port, option in wanted:
            sockets.enter_context(serve.listen(host, port, option=f"{option} (or --free-ports)"))


def choose_engine(config: Config, asked: Engine | None, *, from_file: bool) -> Engine | None:
    """What takes the turns; None: the replicas of the file. Raises ConfigError when the file has none and no engine was asked for."""
    if asked is None and from_file and not config.replicas:
        raise ConfigError("replicas: the file names none; add one, or give --engine fake")
    return asked or (None if from_file else Engine.FAKE)


def prepare_engine(engine: Engine | None) -> None:
    """Have ready what the engine needs; fetching weights may take minutes and is said on standard error.

    Raises LuftpauseError: `missing_extra` names the line which installs what is missing.
    """
    if engine is not Engine.LLAMACPP:
        return
    if importlib.util.find_spec("xllamacpp") is None:
        mend = "pip install -c constraints.txt -e '.[local]'"
        raise LuftpauseError(f"--engine llamacpp needs the extra `local`; in a clone: {mend}", code="missing_extra")
    if weights.smollm2(fetch=False) is None:
        print("fetching the weights of SmolLM2-135M (98 MB), once …", file=sys.stderr)
        weights.smollm2()


async def start(children: Children, plan: Plan) -> Addresses:
    """Start everything, each part when what it needs is there; to be run under `children.supervise`."""
    engines, servers = await _start_outside(children, plan.engine)
    config = plan.config
    if plan.engine is not None:
        config = config.model_copy(update={"replicas": engines})
        config = _with(config, "runtime", servers=config.runtime.servers or servers)
    if not config.scheduler.dataplanes_expected:
        config = _with(config, "scheduler", dataplanes_expected=(config.dataplane.name,))
    scheduler = await children.start("scheduler", "scheduler", "--config", _write(config, plan.folder, "scheduler"))
    config = _with(config, "dataplane", scheduler=scheduler["grpc"])
    dataplane = await children.start(
        "dataplane", "dataplane", "--config", _write(config, plan.folder, "dataplane"),
        grace_seconds=config.dataplane.stop_grace_seconds + 5,
    )  # fmt: skip
    config = _with(config, "runtime", dataplane=dataplane["http"])
    runtime = await children.start(
        "runtime", "runtime", "--config", _write(config, plan.folder, "runtime"),
        grace_seconds=config.runtime.stop_grace_seconds + 5,
    )  # fmt: skip
    urls = {engine.name: engine.url for engine in config.replicas}
    return Addresses(proxy=dataplane["http"], mcp=runtime["mcp"], status=scheduler["http"], engines=urls)


async def _start_outside(children: Children, engine: Engine | None) -> tuple[tuple[ReplicaConfig, ...], dict[str, UpstreamConfig]]:
    """What the services need but are not: engines and tools."""
    match engine:
        case None:
            return (), {}
        case Engine.FAKE:
            starts = [children.start(name, "fake-engine", "--port", "0") for name in FAKE_ENGINES]
            names, load = FAKE_ENGINES, "sglang"
        case Engine.LLAMACPP:
            starts = [children.start(LLAMA_ENGINE, "llama-engine", "--port", "0")]
            names, load = (LLAMA_ENGINE,), "llamacpp"
        case _:
            assert_never(engine)
    *engines, tools = await asyncio.gather(*starts, children.start(FAKE_TOOLS, "fake-mcp", "--port", "0"))
    replicas = tuple(ReplicaConfig(name=name, url=at["http"], load=load) for name, at in zip(names, engines, strict=True))
    return replicas, {"tools": UpstreamConfig(url=tools["mcp"])}


def _write(config: Config, folder: Path, name: str) -> str:
    path = folder / f"{name}.yaml"
    path.touch(mode=0o600)
    values: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)
