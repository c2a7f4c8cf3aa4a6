"""What does a replica serve?"""

from luftpause.scheduler.core.events import Kind
from luftpause.scheduler.core.model import GENERATIVE, Replica

EMBEDDING = Kind.EMBEDDING.value
ANYTHING = "*"  # in a configured model's name: any characters, or none


def serves(replica: Replica, kind: str, model: str, api: str) -> bool:
    if replica.removed or replica.models is None or not takes_kind(replica, kind):
        return False
    return (model in replica.models or fits(replica.models, model)) and speaks(replica, kind, api)


def speaks(replica: Replica, kind: str, api: str) -> bool:
    return not replica.apis or kind != GENERATIVE or api in replica.apis


def takes_kind(replica: Replica, kind: str) -> bool:
    """A classifier takes classifier turns only; embeddings also go to generative replicas, which serve them by model."""
    return replica.kind == kind or (replica.kind == GENERATIVE and kind == EMBEDDING)


def patterns_of(replica: Replica) -> tuple[str, ...]:
    return tuple([name for name in replica.models or () if ANYTHING in name])


def fits(patterns: tuple[str, ...], model: str) -> bool:
    """One of them is a pattern that the model's name fits."""
    return any(_fits(pattern, model) for pattern in patterns if ANYTHING in pattern)


def _fits(pattern: str, model: str) -> bool:
    first, *others = pattern.split(ANYTHING)
    *inner, last = others
    at, end = len(first), len(model) - len(last)
    if at > end or not model.startswith(first) or not model.endswith(last):
        return False
    for part in inner:  # leftmost first leaves most for those that follow
        found = model.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
