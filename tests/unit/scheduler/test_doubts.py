"""After which events are a replica's models asked again before their time?"""

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import Event, ProbeOutcome, ReplicaProbed, ReplicaSpec, TurnFailed, TurnFinished, TurnRequested
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.doubts import Doubts


class World:
    def __init__(self) -> None:
        self.state = initial(Settings(start_grace_seconds=0.0), (ReplicaSpec("a", "http://a"), ReplicaSpec("b", "http://b")), 0.0)
        self.doubted: list[str] = []
        self._observe = Doubts(self.doubted.append)
        self.tell(ReplicaProbed(1.0, "a", ProbeOutcome.OK, models=("m",)), ReplicaProbed(1.0, "b", ProbeOutcome.OK, models=("n",)))

    def tell(self, *events: Event) -> None:
        for event in events:
            step = decide(self.state, event)
            self._observe(self.state, event, step)
            self.state = step.state


def ask(turn: str, model: str) -> TurnRequested:
    return TurnRequested(1.0, "d", turn, 1, f"run-{turn}", model)


def test_an_engine_that_refuses_a_turn_may_serve_something_else_by_now() -> None:
    world = World()
    world.tell(ask("t", "m"), TurnFailed(2.0, "d", "t", 1, "engine_error"))
    assert world.doubted == ["a"]


def test_a_model_that_nobody_serves_may_have_come_meanwhile() -> None:
    world = World()
    world.tell(ask("t", "adapter"))
    assert world.doubted == [""]


def test_nothing_else_raises_doubts() -> None:
    world = World()
    world.tell(ask("t", "m"), TurnFailed(2.0, "d", "t", 1, "client_left"), ask("u", "n"), TurnFinished(3.0, "d", "u", 1, "stop"))
    world.tell(TurnFailed(4.0, "d", "gone", 1, "engine_error"))
    assert world.doubted == []
