"""What belongs to a whole luftpause on one machine, and in which order is it started?

Each part announces where it listens and the next one's configuration is made from that, so that free ports work everywhere. Most of
a start is imports: a service is launched early and waits for its configuration after those.
"""

import contextlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never, cast
from urllib.parse import urlsplit

import yaml

from luftpause.cli import weights
from luftpause.cli.children import GRACE_SECONDS, Child, Children
from luftpause.cli.choices import Engine
from luftpause.kit import serve
from luftpause.kit.config import Config, ReplicaConfig, UpstreamConfig
from luftpause.kit.errors import ConfigError, LuftpauseError
from luftpause.kit.logs import Log

FAKE_ENGINES: Final = ("engine-a", "engine-b")
FAKE_ENGINE_OPTIONS: Final = ("--kv-tokens", "64000")  # coding agents begin with some 20,000 tokens
FAKE_TOOLS: Final = "fake-mcp"
LLAMA_ENGINE: Final = "smollm2"

log = Log("up")


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


def with_recording(config: Config, folder: Path | None, *, clear: bool) -> Config:
    """The same configuration with logs in another directory (None keeps it), with the names in them in the clear if asked."""
    return _with(config, "scheduler", record=folder.absolute() if folder else None, record_clear=clear or None)


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
    weights.smollm2()


async def start(children: Children, plan: Plan) -> Addresses:
    """Start everything, each part when what it needs is there; to be run under `children.supervise`.

    Engines and scheduler have the cores for themselves at first: the first probe of an engine may take a second, in which the others start.
    """
    config = plan.config
    engines = await _launch_engines(children, plan.engine)
    scheduler = await _launch(children, plan, "scheduler")
    if plan.engine is not None:
        config = config.model_copy(update={"replicas": await _replicas(children, engines, plan.engine)})
    config = _with_expected(config)
    write(config, _file(plan, "scheduler"))
    tools = await children.launch(FAKE_TOOLS, "fake-mcp", "--port", "0") if plan.engine is not None and not config.runtime.servers else None
    dataplane = await _launch(children, plan, "dataplane", config.dataplane.stop_grace_seconds + 5)
    runtime = await _launch(children, plan, "runtime", config.runtime.stop_grace_seconds + 5)
    status = await children.ready(scheduler)
    write(_with(config, "dataplane", scheduler=status["grpc"]), _file(plan, "dataplane"))
    proxy = await children.ready(dataplane)
    if tools is not None:
        config = _with(config, "runtime", servers={"tools": UpstreamConfig(url=(await children.ready(tools))["mcp"])})
    page = urlsplit(status["http"]).port  # which may read the runtime's status
    write(_with(_with(config, "scheduler", http_port=page), "runtime", dataplane=proxy["http"]), _file(plan, "runtime"))
    mcp = await children.ready(runtime)
    urls = {engine.name: engine.url for engine in config.replicas}
    return Addresses(proxy=proxy["http"], mcp=mcp["mcp"], status=status["http"], engines=urls)


def take_replicas(plan: Plan, config: Config) -> None:
    """Give the running scheduler the replicas and targets of quotas of `config`; everything else stays as it was started."""
    if plan.engine is not None:
        log.info("the replicas of the file are not used: the engines that were asked for take the turns", engine=plan.engine.value)
        return
    governor = plan.config.governor.model_copy(update={"targets": config.governor.targets})
    changed = plan.config.model_copy(update={"replicas": config.replicas, "governor": governor})
    write(_with_expected(changed), _file(plan, "scheduler"))


def _with_expected(config: Config) -> Config:
    if config.scheduler.dataplanes_expected:
        return config
    return _with(config, "scheduler", dataplanes_expected=(config.dataplane.name,))


async def _launch(children: Children, plan: Plan, name: str, grace_seconds: float = GRACE_SECONDS) -> Child:
    """A service that waits for its configuration."""
    return await children.launch(name, name, "--config", str(_file(plan, name)), "--config-follows", grace_seconds=grace_seconds)


async def _launch_engines(children: Children, engine: Engine | None) -> list[Child]:
    match engine:
        case None:
            return []
        case Engine.FAKE:
            return [await children.launch(name, "fake-engine", "--port", "0", *FAKE_ENGINE_OPTIONS) for name in FAKE_ENGINES]
        case Engine.LLAMACPP:
            return [await children.launch(LLAMA_ENGINE, "llama-engine", "--port", "0")]
        case _:
            assert_never(engine)


async def _replicas(children: Children, engines: list[Child], engine: Engine) -> tuple[ReplicaConfig, ...]:
    load = "llamacpp" if engine is Engine.LLAMACPP else "sglang"
    return tuple([ReplicaConfig(name=each.name, url=(await children.ready(each))["http"], load=load) for each in engines])


def _file(plan: Plan, name: str) -> Path:
    return plan.folder / f"{name}.yaml"


def write(config: Config, path: Path) -> None:
    """For a child process: the whole file appears at once, since somebody waits for it. Nobody else may read it."""
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    values: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    values["replicas"] = values.get("replicas", [])  # no replicas are told from a file that lost them
    part.write_text(yaml.safe_dump(_as_written(values), sort_keys=False))
    part.replace(path)


def _as_written(value: Any) -> Any:
    """Variables are expanded already: a `$` that is left over stands for itself."""
    match value:
        case str():
            return value.replace("$", "$$")
        case dict():
            return {key: _as_written(each) for key, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_as_written(each) for each in cast("list[Any]", value)]
        case _:
            return value
