"""Which replicas can take a request that is no turn?"""

from collections.abc import Iterable
from typing import Final

from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import Kind, Replica
from luftpause.kit.model_names import fits

HEALTHY: Final = "healthy"
MODELS_NAMED_MAX: Final = 50  # in an error message


def speaking(replicas: Iterable[Replica], api: str) -> list[Replica]:
    """Generative replicas with this API, or of which nobody knows, that are not known to be down; healthy ones first."""
    found = [each for each in replicas if each.kind is Kind.GENERATIVE and _speaks(each, api) and each.state != "unhealthy"]
    return sorted(found, key=lambda each: each.state != HEALTHY)


def serving(replicas: Iterable[Replica], model: str, api: str) -> list[Replica] | Rejection:
    """Healthy generative replicas of a model that have this API; else why there are none."""
    known = [each for each in replicas if each.kind is Kind.GENERATIVE]
    of_model = [each for each in known if any(fits(pattern, model) for pattern in each.models)]
    able = [each for each in of_model if _speaks(each, api)]
    healthy = [each for each in able if each.state == HEALTHY]
    if healthy:
        return healthy
    if able or any(not each.models for each in known) or not known:
        return Rejection(503, "no_replica", f"no replica that serves model {model!r} is healthy now", retry_after_s=2)
    if of_model:
        shown = "; ".join(f"{each.name} serves {', '.join(each.apis)}" for each in of_model[:MODELS_NAMED_MAX])
        return Rejection(404, "api_not_served", f"model {model!r} is served only by replicas without the {api} API ({shown})")
    served = sorted({name for each in known for name in each.models})
    return Rejection(
        404, "model_not_found", f"no generative replica serves model {model!r}; served: {', '.join(served[:MODELS_NAMED_MAX])}"
    )


def _speaks(replica: Replica, api: str) -> bool:
    return not replica.apis or api in replica.apis
