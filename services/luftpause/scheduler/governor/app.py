"""What does a scheduler run of the rate governor?"""

import asyncio
from collections.abc import Callable, Coroutine

from msgspec import Struct

from luftpause.kit.auth import Tokens
from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError
from luftpause.kit.logs import Log
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.ledger_file import Found, Keeper, LedgerFile
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.metrics import QuotaMetrics
from luftpause.scheduler.governor.server import QuotaServer
from luftpause.scheduler.governor.store.configured import node_name, shared_store, sharing_settings
from luftpause.scheduler.governor.tally import QuotaTally
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.governor.watch import QuotaWatch
from luftpause.scheduler.quota.events import TargetConfigured, TargetRemoved
from luftpause.scheduler.quota.model import State
from luftpause.scheduler.quota.specs import TargetSpec

log = Log("governor")


class Governing(Struct, frozen=True):
    """A governor. `configure` gives it the targets of another configuration; False: that has a mistake. `metrics` is what it shows."""

    governor: Governor
    port: LocalPort
    server: QuotaServer
    metrics: QuotaMetrics
    configure: Callable[[Config], bool]
    tasks: tuple[Callable[[], Coroutine[None, None, None]], ...]

    async def run(self) -> None:
        """Until cancelled. Raises LuftpauseError where it can't go on."""
        running = [asyncio.ensure_future(task()) for task in self.tasks]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def governing(config: Config, tokens: Tokens | None = None, *, clock: Clock = monotonic) -> Governing:
    """A governor with the targets that are configured, not running yet. Raises ConfigError."""
    own = config.governor
    file = LedgerFile(own.state) if own.state is not None else None
    found = _found(file, initial_state(own, clock()))
    governor = Governor(found.state, clock=clock)
    if own.store != "memory":
        governor.share(shared_store(own), node=node_name(), settings=sharing_settings(own))
    port = LocalPort(governor, lease_seconds=own.lease_seconds, wait_seconds_max=own.wait_seconds_max)
    targets = _Targets(governor, own.lease_seconds if found.lost else 0.0)
    targets.configure(config)
    watch, tally = QuotaWatch(governor), QuotaTally(governor)
    tasks = [governor.run, watch.run]
    if file is not None:
        tasks.append(Keeper(governor, file, seconds=own.state_seconds).run)
    return Governing(governor, port, QuotaServer(port, tokens), QuotaMetrics(governor, tally), targets.follow, tuple(tasks))


def _found(file: LedgerFile | None, state: State) -> Found:
    if file is None:
        return Found(state)
    file.check()
    return file.read(state)


class _Targets:
    """Those that the governor was told. `learning_seconds`: so long P2 waits at first, as nobody knows what is out."""

    def __init__(self, governor: Governor, learning_seconds: float) -> None:
        self._governor = governor
        self._learning_seconds = learning_seconds
        self._told: dict[str, TargetSpec] = {}

    def follow(self, config: Config) -> bool:
        """As `configure`; a mistake goes to the log, and what was configured before stays."""
        try:
            self.configure(config)
        except ConfigError as error:
            log.warning("the new quotas have a mistake; replicas and quotas of before hold", problem=error.message)
            return False
        return True

    def configure(self, config: Config) -> None:
        """Raises ConfigError. Targets that have changed keep their ledgers; those that are gone are forgotten, also those of the file."""
        specs = {spec.name: spec for spec in specs_of(config.governor, config.replicas)}
        for name in sorted(self._governor.state.targets.keys() - specs.keys()):
            self._told.pop(name, None)
            self._governor.post(TargetRemoved(self._governor.now, name))
        for name, spec in specs.items():
            if self._told.get(name) != spec:
                self._told[name] = spec
                self._governor.post(TargetConfigured(self._governor.now, spec, learning_seconds=self._learning_seconds))
        self._learning_seconds = 0.0
