"""What does a session make of a Hello whose parts take their time?"""

import asyncio

from luftpause.kit import protocol
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.events import Event, Resync
from luftpause.scheduler.outbox import Orders
from luftpause.scheduler.session import Session


def test_ages_in_a_hello_are_from_when_it_began_however_long_its_parts_take() -> None:
    attached: list[Resync] = []
    posted: list[Event] = []

    def attach(resync: Resync, outbox: Orders) -> None:
        del outbox
        attached.append(resync)

    async def say_hello() -> None:
        now = 100.0
        session = Session("peer", orders_max=10, hello_bytes_max=1 << 20, clock=lambda: now)
        version = pb.Protocol(major=protocol.MAJOR, minor=protocol.MINOR)
        session.open(pb.Hello(dataplane="d", boot="b", protocol=version))
        for number in (1, 2):
            now += 30.0
            run = pb.RunRecord(run=f"r{number}", age_ms=5_000)
            turn = pb.TurnRecord(turn=f"t{number}", age_ms=2_000)
            part = pb.Fact(hello_part=pb.HelloPart(runs=[run], turns=[turn]))
            session.receive([part], post=posted.append, attach=attach)
        session.receive([pb.Fact(hello_end=pb.HelloEnd())], post=posted.append, attach=attach)

    asyncio.run(say_hello())
    (resync,) = attached
    assert posted == []
    assert resync.now == 160.0
    assert [(run.run, run.seen) for run in resync.runs] == [("r1", 95.0), ("r2", 95.0)]
    assert [(turn.turn, turn.placed) for turn in resync.turns] == [("t1", 98.0), ("t2", 98.0)]
