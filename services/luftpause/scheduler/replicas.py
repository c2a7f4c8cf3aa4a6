"""What is the core told of the configured replicas, and what are dataplanes told of them?"""

from collections.abc import Iterable

from luftpause.kit.config import ReplicaConfig
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.config_quota import target_of
from luftpause.kit.urls import base_url
from luftpause.scheduler.core.admission import passes_unasked
from luftpause.scheduler.core.events import Kind, ReplicaSpec
from luftpause.scheduler.core.model import State
from luftpause.scheduler.translate import Announced, Replicas

NO_TARGETS = GovernorConfig()


def specs(configs: Iterable[ReplicaConfig], governor: GovernorConfig = NO_TARGETS) -> tuple[ReplicaSpec, ...]:
    """The replicas as the core knows them. That names differ and URLs are bases is for the configuration to see to."""
    return tuple(_spec(config, governor) for config in configs)


def _spec(config: ReplicaConfig, governor: GovernorConfig) -> ReplicaSpec:
    return ReplicaSpec(
        name=config.name,
        url=base_url(config.url),
        models=config.models,
        kind=Kind(config.kind),
        capped=config.load != "none",
        max_in_flight=config.max_in_flight,
        priority=config.priority,
        router=bool(config.load_from),
        api_key_env=config.api_key_env or "",
        apis=config.apis or (),
        quota=target_of(config, governor) or "",
        passes_limits=config.on_limit == "pass",
        fallback=config.fallback,
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
                asks_usage=(state.settings.policy == "guard" or bool(replica.spec.quota)) and replica.spec.kind is Kind.GENERATIVE,
                tells_limits=bool(replica.spec.quota),
                holds_limits=bool(replica.spec.quota) and not replica.spec.passes_limits,
                passes_unasked=passes_unasked(replica),
            )
        )
    return Replicas(tuple(found))
