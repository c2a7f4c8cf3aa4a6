"""What is the core told of the configured replicas, and what are dataplanes told of them?"""

from collections.abc import Iterable

from luftpause.kit.config import ReplicaConfig
from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import base_url
from luftpause.scheduler.core.events import Kind, ReplicaSpec
from luftpause.scheduler.core.model import State
from luftpause.scheduler.translate import Announced, Replicas


def specs(configs: Iterable[ReplicaConfig]) -> tuple[ReplicaSpec, ...]:
    """Raises ConfigError where a name stands twice or a URL can't be a base."""
    found: dict[str, ReplicaSpec] = {}
    for index, config in enumerate(configs):
        if config.name in found:
            raise ConfigError(f"replicas[{index}].name: {config.name!r} is taken; each replica needs its own name")
        try:
            found[config.name] = _spec(config)
        except ConfigError as error:
            raise ConfigError(f"replicas[{index}].{error.message}") from None
    return tuple(found.values())


def _spec(config: ReplicaConfig) -> ReplicaSpec:
    return ReplicaSpec(
        name=config.name,
        url=base_url(config.url),
        models=config.models,
        kind=Kind(config.kind),
        capped=config.load != "none",
        max_in_flight=config.max_in_flight,
        api_key_env=config.api_key_env or "",
        apis=config.apis or (),
    )


def announced(state: State) -> Replicas:
    """All configured replicas with the health and models that the core knows."""
    found: list[Announced] = []
    for name in state.names:
        replica = state.replicas[name]
        found.append(
            Announced(
                name=name,
                url=replica.spec.url,
                models=replica.models or (),
                kind=replica.spec.kind,
                state=replica.health.value,
                api_key_env=replica.spec.api_key_env,
                apis=replica.apis,
            )
        )
    return Replicas(tuple(found))
