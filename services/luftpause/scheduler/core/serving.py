"""What does a replica serve?"""

from luftpause.scheduler.core.events import Kind
from luftpause.scheduler.core.model import GENERATIVE, Replica

EMBEDDING = Kind.EMBEDDING.value


def serves(replica: Replica, kind: str, model: str, api: str) -> bool:
    if replica.removed or replica.models is None or model not in replica.models or not takes_kind(replica, kind):
        return False
    return speaks(replica, kind, api)


def speaks(replica: Replica, kind: str, api: str) -> bool:
    return not replica.apis or kind != GENERATIVE or api in replica.apis


def takes_kind(replica: Replica, kind: str) -> bool:
    """A classifier takes classifier turns only; embeddings also go to generative replicas, which serve them by model."""
    return replica.kind == kind or (replica.kind == GENERATIVE and kind == EMBEDDING)
