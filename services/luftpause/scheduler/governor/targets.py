"""How does the configuration become what the governor's core starts with?"""

from collections.abc import Sequence

from luftpause.kit.config import ReplicaConfig
from luftpause.kit.config_governor import GovernorConfig, ScopeConfig, TargetConfig, ThresholdsConfig
from luftpause.kit.config_quota import targets_of
from luftpause.kit.errors import ConfigError
from luftpause.scheduler.quota import article, core
from luftpause.scheduler.quota.model import Settings, State
from luftpause.scheduler.quota.profiles import target_spec
from luftpause.scheduler.quota.specs import Ladder, ScopeSpec, TargetSpec


def initial_state(governor: GovernorConfig, now: float) -> State:
    """A governor that starts at `now`, without targets. Raises ConfigError."""
    workflows = governor.cascade.workflows
    try:
        return core.initial(settings_of(governor), now, workflows)
    except ValueError as error:
        raise ConfigError(f"governor.cascade.workflows: {error}") from error


def settings_of(governor: GovernorConfig) -> Settings:
    cascade = governor.cascade
    settings = Settings(
        cascade_callers=cascade.threshold, cascade_seconds=cascade.window_seconds, cascade_quiet_seconds=cascade.window_seconds
    )  # fmt: skip
    return article.settings(settings) if governor.policy == "article" else settings


def specs_of(governor: GovernorConfig, replicas: Sequence[ReplicaConfig]) -> list[TargetSpec]:
    """All targets, by name. Raises ConfigError."""
    found = targets_of(governor, replicas)
    return [_spec(name, found[name], governor.thresholds) for name in sorted(found)]


def _spec(name: str, target: TargetConfig, thresholds: ThresholdsConfig) -> TargetSpec:
    lights = target.thresholds or thresholds
    try:
        return target_spec(
            name,
            target.profile,
            scopes=None if target.scopes is None else [_scope(scope) for scope in target.scopes],
            limits=target.limits,
            penalty_seconds=target.penalty_seconds,
            declared_demand=target.declared_demand,
            lights=(lights.green, lights.red),
            reservations=target.reservations,
            ladder=Ladder(target.ladder.max_tokens_factor, target.ladder.max_tokens_min),
        )
    except ValueError as error:
        raise ConfigError(f"governor: {error}") from error


def _scope(scope: ScopeConfig) -> ScopeSpec:
    return ScopeSpec(
        scope.name,
        scope.kind,
        scope.limit,
        scope.window_seconds,
        charge=scope.charge,
        burst=scope.burst,
        protect=scope.protect,
        floor=scope.floor,
        counts=scope.counts,
    )
