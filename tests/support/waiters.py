"""Who waits for the scheduler's word in a test?"""

import asyncio

from luftpause.dataplane.turns import Ask, Placement, Refusal, TurnClass


class Recorder:
    """A `turns.Waiter` that writes down what it is told, and whose next word can be awaited."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str] | Placement | Refusal] = []
        self.final: list[Placement | Refusal] = []
        self._changed = asyncio.Event()

    def held(self, run: str, reason: str) -> None:
        self.told.append((run, reason))
        self._changed.set()

    def placed(self, placement: Placement) -> None:
        self._end(placement)

    def refused(self, refusal: Refusal) -> None:
        self._end(refusal)

    def _end(self, word: Placement | Refusal) -> None:
        self.told.append(word)
        self.final.append(word)
        self._changed.set()

    async def until(self, words: int, *, seconds: float = 30.0) -> None:
        """Wait until it was told at least `words` things."""
        async with asyncio.timeout(seconds):
            while len(self.told) < words:
                self._changed.clear()
                await self._changed.wait()

    async def placement(self, *, seconds: float = 30.0) -> Placement:
        """Wait for the first placement or refusal; it must be a placement."""
        async with asyncio.timeout(seconds):
            while not self.final:
                self._changed.clear()
                await self._changed.wait()
        assert isinstance(self.final[-1], Placement)
        return self.final[-1]


def an_ask(turn: str, *, run: str = "", model: str = "m", turn_class: TurnClass = TurnClass.INTERACTIVE, **more: object) -> Ask:
    return Ask(turn=turn, fresh_run=f"run_of_{turn}", model=model, turn_class=turn_class, caller="", run=run, **more)  # pyright: ignore[reportArgumentType]
