"""What does a scheduler run of the rate governor?"""

from collections.abc import Callable

from msgspec import Struct

from luftpause.kit.auth import Tokens
from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import Config
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.server import QuotaServer
from luftpause.scheduler.governor.store.configured import node_name, shared_store, sharing_settings
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.quota.events import TargetConfigured
from luftpause.scheduler.quota.specs import TargetSpec


class Governing(Struct, frozen=True):
    """A governor. `configure` gives it the targets of another configuration; raises ConfigError."""

    governor: Governor
    port: LocalPort
    server: QuotaServer
    configure: Callable[[Config], None]


def governing(config: Config, tokens: Tokens | None = None, *, clock: Clock = monotonic) -> Governing:
    """A governor with the targets that are configured, not running yet. Raises ConfigError."""
    own = config.governor
    governor = Governor(initial_state(own, clock()), clock=clock)
    if own.store != "memory":
        governor.share(shared_store(own), node=node_name(), settings=sharing_settings(own))
    port = LocalPort(governor, lease_seconds=own.lease_seconds, wait_seconds_max=own.wait_seconds_max)
    targets = _Targets(governor)
    targets.configure(config)
    return Governing(governor, port, QuotaServer(port, tokens), targets.configure)


class _Targets:
    """Those that the governor was told."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._told: dict[str, TargetSpec] = {}

    def configure(self, config: Config) -> None:
        """Targets that have changed keep their ledgers."""
        for spec in specs_of(config.governor, config.replicas):
            if self._told.get(spec.name) != spec:
                self._told[spec.name] = spec
                self._governor.post(TargetConfigured(self._governor.now, spec))
