"""Is a replica that rests told in the log, once?"""

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import Event, ProbeOutcome, ReplicaProbed, ReplicaSpec, TurnFailed, TurnFinished, TurnRequested
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.resting import tell_rests


class World:
    def __init__(self) -> None:
        specs = [ReplicaSpec(name, f"http://{name}", models=("m",)) for name in ("a", "b")]
        self.now, self.turns = 1.0, 0
        self.state = initial(Settings(start_grace_seconds=0.0, burst_turns_max=0), tuple(specs), 0.0)
        self.probe()

    def tell(self, event: Event) -> None:
        step = decide(self.state, event)
        tell_rests(self.state, event, step)
        self.state = step.state

    def probe(self) -> None:
        for name in ("a", "b"):
            self.tell(ReplicaProbed(self.now, name, ProbeOutcome.OK))

    def ask(self) -> str:
        self.turns += 1
        self.tell(TurnRequested(self.now, "d", f"t{self.turns}", 1, f"run-{self.turns}", "m"))
        return f"t{self.turns}"

    def fails(self, reason: str = "engine_fault") -> None:
        turn = self.ask()
        assert self.state.turns[turn].replica == "a"
        self.tell(TurnFailed(self.now, "d", turn, 1, reason))


def test_a_rest_is_told_once_for_all_faults_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(3):
        world.fails("engine_error")
    world.fails()
    world.fails()
    assert not caplog.records
    world.fails()
    (record,) = caplog.records
    assert "failed 3 turns in a row" in record.message
    assert "'a'" in str(getattr(record, "fields", ""))
    world.now += 10
    world.probe()
    world.fails()  # it rests again
    assert len(caplog.records) == 1
    world.now += 10
    world.probe()
    world.tell(TurnFinished(world.now, "d", world.ask(), 1, "stop"))
    for _ in range(3):
        world.fails()
    assert len(caplog.records) == 2
