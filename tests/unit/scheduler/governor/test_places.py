"""Does a wish that is asked for poll by poll keep its place, and is nothing held for whoever does not come back?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.quota_port import Granted, NotNow, Refused
from luftpause.scheduler.governor import places
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.places import Places
from luftpause.scheduler.governor.store.port import Answer, Asked, Hint, Reserve
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.quota.events import LimitsObserved, Standing, TargetConfigured, TargetRemoved
from luftpause.scheduler.quota.samples import Sample
from tests.support.quota_node import TARGET, eventually, node, one_window
from tests.support.virtual_time import virtual_time

CONFIG = GovernorConfig.model_validate({
    "targets": {
        "one": {"scopes": [{"name": "at_once", "kind": "concurrent", "limit": 1, "counts": ["requests"]}]},
        "hourly": {"scopes": [{"name": "requests", "limit": 100, "window_seconds": 3600}]},
    }
})


@asynccontextmanager
async def running() -> AsyncIterator[LocalPort]:
    clock = asyncio.get_running_loop().time
    host = Governor(initial_state(CONFIG, clock()), clock=clock)
    for spec in specs_of(CONFIG, ()):
        host.post(TargetConfigured(host.now, spec))
    task = asyncio.create_task(host.run())
    try:
        yield LocalPort(host, lease_seconds=10_000.0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(
    port: LocalPort, want: str, seconds: float = 0.0, *, target: str = "one", priority: int = 1, retry: bool = False
) -> Granted | NotNow | Refused:
    return await port.reserve(target, want, caller=want[0], priority=priority, wait_seconds=seconds, retry=retry)


async def first_of(port: LocalPort, *wants: str) -> str:
    """Which of these, that ask in this order, is granted next, once what `held` has is given back."""
    asking = {asyncio.create_task(ask(port, want, 30.0)): want for want in wants}
    await asyncio.sleep(0)
    await port.release("one", "held", 1)
    done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    (task,) = done
    assert isinstance(task.result(), Granted)
    return asking[task]


@virtual_time
@pytest.mark.parametrize("poll_seconds", [0.0, 5.0])
async def test_a_wish_that_is_asked_for_again_goes_back_to_where_it_stood(poll_seconds: float) -> None:
    async with running() as port:
        await ask(port, "held")
        said = await ask(port, "early", poll_seconds)
        assert isinstance(said, NotNow)
        later = asyncio.create_task(ask(port, "later", 30.0))
        await asyncio.sleep(said.retry_seconds)
        assert await first_of(port, "early") == "early"
        later.cancel()
        await asyncio.gather(later, return_exceptions=True)


@virtual_time
async def test_whoever_was_cut_off_amid_its_poll_goes_back_too() -> None:
    async with running() as port:
        await ask(port, "held")
        cut = asyncio.create_task(ask(port, "early", 30.0))
        await asyncio.sleep(1.0)
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
        await asyncio.sleep(0.5)
        assert await first_of(port, "later", "early") == "early"


@virtual_time
async def test_a_queue_that_is_full_for_a_moment_costs_no_place() -> None:
    async with running() as port:
        await ask(port, "held")
        await ask(port, "early", 5.0)
        host = port._governor
        usual = host.state.settings
        host.state = replace(host.state, settings=replace(usual, waiters_max=0))
        assert isinstance(await ask(port, "early", 5.0), Refused)
        host.state = replace(host.state, settings=usual)
        assert await first_of(port, "later", "early") == "early"


@virtual_time
async def test_whoever_comes_back_too_late_is_new() -> None:
    async with running() as port:
        await ask(port, "held")
        await ask(port, "early", 5.0)
        await asyncio.sleep(60.0)
        assert await first_of(port, "later", "early") == "later"


@virtual_time
async def test_between_two_polls_nothing_is_granted_and_nobody_waits_behind_it() -> None:
    async with running() as port:
        await ask(port, "held")
        await ask(port, "early", 5.0)
        assert not port._governor.state.targets["one"].waiters
        assert await first_of(port, "later") == "later"
        assert set(port._governor.state.targets["one"].leases) == {"later"}


@virtual_time
async def test_a_background_call_that_polls_ranks_as_a_standard_one_after_five_minutes() -> None:
    """Its own floor is spent and the light is red, so nothing else lets it through within 12 minutes."""
    clock = asyncio.get_running_loop().time
    async with running() as port:
        told = (Sample("requests", limit=100, remaining=10, reset_seconds=3600),)
        port._governor.post(LimitsObserved(port._governor.now, "hourly", told))
        other = await ask(port, "other", target="hourly", priority=2)
        assert isinstance(other, Granted)
        await port.report("hourly", "other", other.fence, status=200, headers={})
        while isinstance(answer := await ask(port, "mine", 50.0, target="hourly", priority=2), NotNow) and clock() < 1_000:
            await asyncio.sleep(2.0)
        assert isinstance(answer, Granted)
        assert 299.0 <= clock() <= 301.0


@virtual_time
async def test_polls_of_one_wish_are_one_demand_and_one_retry() -> None:
    async with running() as port:
        await ask(port, "held")
        await ask(port, "again", 1.0, retry=True)
        before = port._governor.state.targets["one"]
        for _ in range(20):
            assert isinstance(await ask(port, "again", 1.0, retry=True), NotNow)
        after = port._governor.state.targets["one"]
        assert after.budgets == before.budgets
        assert sum(after.scopes["at_once"].demand) == sum(before.scopes["at_once"].demand) > 0


@virtual_time
async def test_a_place_of_a_target_that_was_another_one_meanwhile_is_none_before_all_others() -> None:
    async with running() as port:
        host = port._governor
        await asyncio.sleep(500.0)
        await ask(port, "held")
        await ask(port, "early", 5.0)
        host.post(TargetRemoved(host.now, "one"))
        host.post(TargetConfigured(host.now, next(spec for spec in specs_of(CONFIG, ()) if spec.name == "one")))
        await ask(port, "held")
        assert isinstance(await ask(port, "early", 1.0), NotNow | Refused)
        waiting = asyncio.create_task(ask(port, "early", 30.0))
        await asyncio.sleep(0)
        target = host.state.targets["one"]
        assert target.waiters["early"].unblocked_at <= target.unblocked
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


class Declining:
    """A store that has no room; `asked` for it, it answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def ask(self, target: str, question: Asked) -> Answer:
        if isinstance(question, Reserve):
            self.asked.set()
            await self.may.wait()
        return Answer(ok=False, epoch="e", seq=1, fence_max=0, why="room", scope="core", retry_seconds=0.01)

    async def hints(self) -> AsyncIterator[Hint]:
        await asyncio.Event().wait()
        yield Hint()

    async def close(self) -> None:
        pass


async def test_whoever_left_while_a_shared_store_was_asked_does_not_wait_when_it_declines() -> None:
    store = Declining()
    async with node("n", store, one_window(5.0)) as here:
        port = LocalPort(here.governor, lease_seconds=60.0)
        asking = asyncio.create_task(port.reserve(TARGET, "mine", caller="me", priority=1, cost={"core": 1.0}, wait_seconds=30.0))
        await asyncio.wait_for(store.asked.wait(), 60)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert set(here.governor.state.targets[TARGET].leases) == {"mine"}
        kept = port._places.take((TARGET, "mine"), here.governor.now)
        assert kept is not None
        assert kept.number == 1
        store.may.set()
        await eventually("its lease is over", lambda: not here.governor.state.targets[TARGET].leases)
        assert not here.governor.state.targets[TARGET].waiters


async def test_whoever_waits_for_a_shared_stores_word_hears_that_the_target_is_gone() -> None:
    store = Declining()
    async with node("n", store, one_window(5.0)) as here:
        port = LocalPort(here.governor, lease_seconds=60.0)
        asking = asyncio.create_task(port.reserve(TARGET, "mine", caller="me", priority=1, cost={"core": 1.0}, wait_seconds=30.0))
        await asyncio.wait_for(store.asked.wait(), 60)
        here.governor.post(TargetRemoved(here.governor.now, TARGET))
        answer = await asyncio.wait_for(asking, 60)
        assert isinstance(answer, Refused)
        assert answer.code == "target_removed"
        store.may.set()


def test_so_many_places_are_kept_and_no_longer_than_they_can_matter() -> None:
    kept = Places(kept_max=3)
    for number in range(5):
        kept.keep(("t", str(number)), Standing(number, 0.0, 0.0), 0.0, 10.0)
    assert len(kept) == 3
    assert [kept.take(("t", str(number)), 1.0) is not None for number in range(5)] == [False, False, True, True, True]
    assert len(kept) == 0
    kept.keep(("t", "a"), Standing(1, 0.0, 0.0), 0.0, 1e9)
    assert kept.take(("t", "a"), places.KEPT_SECONDS_MAX) is None
    for number in range(3):
        kept.keep(("t", str(number)), Standing(number, 0.0, 0.0), 0.0, 1.0)
    kept.keep(("t", "b"), Standing(1, 0.0, 0.0), 100.0, 1.0)
    assert len(kept) == 1, "what is over goes when another one comes"
