"""What is still to be told: in order, each once, nothing left out."""

import pytest

from luftpause.scheduler.governor.store.journal import Journal
from luftpause.scheduler.governor.store.port import Asked, Named, Release, Report, StoreDownError
from luftpause.scheduler.governor.store.shared_target import Holding
from luftpause.scheduler.quota.model import Lease


def holding(want: str, *, alone: bool, cost: float = 1.0) -> Holding:
    lease = Lease(want, 3, "c", 0, (("core", cost),), granted=10.0, expires=70.0, seconds=60.0, episode=0)
    return Holding(lease, 3, alone=alone)


def report(want: str, used: float = 1.0) -> Report:
    return Report(node="n", want=want, fence=3, actual=(Named("core", used),))


class Teller:
    def __init__(self, fails_at: int | None = None) -> None:
        self.told: list[Asked] = []
        self.fails_at = fails_at

    async def __call__(self, target: str, question: Asked) -> None:
        if self.fails_at == len(self.told):
            self.fails_at = None
            raise StoreDownError("gone")
        self.told.append(question)


async def test_all_is_told_in_order_and_again_from_where_it_broke_off() -> None:
    journal, tell = Journal("n"), Teller(fails_at=1)
    for at in range(3):
        journal.report("t", holding(f"w{at}", alone=False), report(f"w{at}"), 20.0)
    with pytest.raises(StoreDownError):
        await journal.send(tell, lambda: 25.0)
    assert len(journal) == 2
    await journal.send(tell, lambda: 30.0)
    assert [one.want for one in tell.told if isinstance(one, Report)] == ["w0", "w1", "w2"]
    assert [one.age_seconds for one in tell.told if isinstance(one, Report)] == [5.0, 10.0, 10.0]


async def test_what_the_store_never_knew_is_told_with_its_cost_and_a_number() -> None:
    journal, tell = Journal("n"), Teller()
    for at in range(2):
        journal.report("t", holding(f"w{at}", alone=True, cost=2.0), report(f"w{at}"), 20.0)
    await journal.send(tell, lambda: 25.0)
    told = [one for one in tell.told if isinstance(one, Report)]
    assert [one.number for one in told] == [1, 2]
    assert told[0].cost == (Named("core", 2.0),)
    assert told[0].granted_seconds == 15.0


async def test_a_release_of_what_the_store_never_knew_needs_no_word() -> None:
    journal, tell = Journal("n"), Teller()
    journal.release("t", holding("a", alone=True), 20.0)
    journal.release("t", holding("b", alone=False), 20.0)
    await journal.send(tell, lambda: 25.0)
    assert [one.want for one in tell.told if isinstance(one, Release)] == ["b"]
    assert len(tell.told) == 1


async def test_what_went_well_within_a_second_is_told_as_one() -> None:
    journal, tell = Journal("n"), Teller()
    for at in range(40):
        journal.report("t", holding(f"w{at}", alone=True), report(f"w{at}", used=2.0), 20.0 + at / 20)
    journal.report("t", holding("known", alone=False), report("known"), 22.0)
    journal.fold()
    await journal.send(tell, lambda: 30.0)
    told = [question for question in tell.told if isinstance(question, Report)]
    assert [one.number for one in told] == [21, 40, 0]
    assert [one.actual for one in told] == [(Named("core", 42.0),), (Named("core", 38.0),), (Named("core", 1.0),)]
    assert [one.age_seconds for one in told] == [9.0, pytest.approx(8.05), 8.0]


async def test_beyond_its_limit_the_oldest_are_summed_up() -> None:
    journal, tell = Journal("n", entries_max=10), Teller()
    for at in range(100):
        journal.report("t", holding(f"w{at}", alone=True), report(f"w{at}", used=2.0), 20.0 + at)
        journal.report("u", holding(f"u{at}", alone=True), report(f"u{at}", used=1.0), 20.0 + at)
    assert len(journal) == 10
    await journal.send(tell, lambda: 200.0)
    told = [question for question in tell.told if isinstance(question, Report)]
    assert sum(one.units for question in told for one in question.actual) == 300.0
    assert all(question.cost for question in told), "the store charges what stands in the cost"
    assert [question.number for question in told] == sorted(question.number for question in told)
