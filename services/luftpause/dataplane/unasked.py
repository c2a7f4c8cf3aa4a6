"""To which replica may a single pass go without asking the scheduler, since that could give one answer only?"""

from collections.abc import Mapping
from typing import Final

from luftpause.dataplane.servers import HEALTHY
from luftpause.dataplane.turns import Ask, Kind, Replica
from luftpause.kit.model_names import fits

MODELS_MAX: Final = 1_000  # of which the answer is remembered: their names come from clients
MODEL_CHARS_MAX: Final = 512  # as of one that a replica tells


class Unasked:
    """What was announced in this session, and which replicas this dataplane doubts. Requests are numbered from 1 on, in order."""

    def __init__(self) -> None:
        self._replicas: tuple[Replica, ...] = ()
        self._doubted: dict[str, int] = {}  # replica -> requests until then
        self._found: dict[tuple[Kind, str], Replica | None] = {}

    def announced(self, usable: Mapping[str, Replica]) -> None:
        """All that can be used here, whatever their state."""
        self._replicas = tuple([each for each in usable.values() if each.state == HEALTHY])
        self._found.clear()

    def doubt(self, replica: str, requests: int) -> None:
        """It did not take a turn, and the scheduler hears of that. `requests`: made until then."""
        self._doubted[replica] = requests

    def trust(self, replica: str, request: int) -> None:
        """The scheduler has placed the turn of this request there; if that was made after the doubt, it knew of it."""
        if self._doubted.get(replica, request) < request:
            del self._doubted[replica]

    def replica_for(self, ask: Ask) -> Replica | None:
        """Where a classifier or embedding turn goes at once; None: the scheduler is to be asked."""
        if ask.priority >= 0 or len(ask.model) > MODEL_CHARS_MAX:  # whether its caller may claim that is the scheduler's to know
            return None
        key = ask.kind, ask.model
        if key in self._found:
            replica = self._found[key]
        else:
            if len(self._found) >= MODELS_MAX:
                self._found.clear()
            replica = self._found[key] = self._only(*key)
        return None if replica is None or replica.name in self._doubted else replica

    def _only(self, kind: Kind, model: str) -> Replica | None:
        """The one that serves it, if passes may go there unasked."""
        serving = [each for each in self._replicas if _takes(each, kind) and any(fits(name, model) for name in each.models)]
        return serving[0] if len(serving) == 1 and serving[0].passes_unasked else None


def _takes(replica: Replica, kind: Kind) -> bool:
    """A classifier takes classifier turns only; embeddings also go to generative replicas, which serve them by model."""
    return replica.kind is kind or (replica.kind is Kind.GENERATIVE and kind is Kind.EMBEDDING)
