"""Who waits to hear which replica stores a response?"""

from typing import Final

from luftpause.dataplane.turns import Found
from luftpause.kit.ids import random_text

SEEKERS_MAX: Final = 10_000


class Seekers:
    """Open queries. Each is answered once: by the scheduler, or with nothing when its session ends or there are too many."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def add(self, found: Found) -> str:
        """The id of a new query."""
        query = random_text()
        self._found[query] = found
        if len(self._found) > SEEKERS_MAX:
            self.answer(next(iter(self._found)), "")
        return query

    def answer(self, query: str, replica: str) -> bool:
        """False: nobody asked that, or it was answered before."""
        found = self._found.pop(query, None)
        if found is not None:
            found(replica)
        return found is not None

    def drop(self, query: str) -> None:
        """Its answer is not waited for any longer."""
        self._found.pop(query, None)

    def nothing(self) -> None:
        """Nobody will answer what is open."""
        for query in list(self._found):
            self.answer(query, "")
