"""What does a replica serve?"""

from luftpause.kit import model_names
from luftpause.scheduler.core.events import Kind
from luftpause.scheduler.core.model import GENERATIVE, Replica

EMBEDDING = Kind.EMBEDDING.value


def serves(replica: Replica, kind: str, model: str, api: str) -> bool:
    models = replica.models
    if replica.removed or models is None or not takes_kind(replica, kind):
        return False
    return (model in models or fits(models, model)) and (not replica.apis or speaks(replica, kind, api))


def speaks(replica: Replica, kind: str, api: str) -> bool:
    return not replica.apis or kind != GENERATIVE or api in replica.apis


def takes_kind(replica: Replica, kind: str) -> bool:
    """A classifier takes classifier turns only; embeddings also go to generative replicas, which serve them by model."""
    return replica.kind == kind or (replica.kind == GENERATIVE and kind == EMBEDDING)


def patterns_of(replica: Replica) -> tuple[str, ...]:
    return tuple([name for name in replica.models or () if model_names.is_pattern(name)])


def fits(patterns: tuple[str, ...], model: str) -> bool:
    """One of them is a pattern that the model's name fits."""
    return any(model_names.fits(pattern, model) for pattern in patterns if model_names.is_pattern(pattern))
