"""Which targets does a configuration have, and whose allowance does a replica use?"""

from collections.abc import Sequence

from luftpause.kit.config import ReplicaConfig
from luftpause.kit.config_governor import GovernorConfig, TargetConfig


def targets_of(governor: GovernorConfig, replicas: Sequence[ReplicaConfig]) -> dict[str, TargetConfig]:
    """All targets by name: those of the governor, and those that replicas have of their own."""
    found = dict(governor.targets)
    for replica in replicas:
        name = target_of(replica, governor)
        if name is not None and name not in found:
            found[name] = _own(replica)
    return found


def target_of(replica: ReplicaConfig, governor: GovernorConfig) -> str | None:
    """The target whose allowance its turns use; None: they use none."""
    if replica.quota is None:
        return None
    shared = replica.quota.target
    return shared if shared is not None and shared in governor.targets else replica.name


def _own(replica: ReplicaConfig) -> TargetConfig:
    quota = replica.quota
    if quota is None or quota.target is None:
        return quota or TargetConfig()
    return TargetConfig.model_validate({"profile": quota.target})
