"""Do the hosts' timers go on where the loop has no timer for what is due at once?

uvloop, which services run on, calls back soon instead within half a millisecond, by a handle that does not tell when.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from luftpause.scheduler.core.decisions import Step as SchedulerStep
from luftpause.scheduler.governor import host as governor_host
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.host import Host
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.events import QuotaWanted, TargetConfigured
from luftpause.scheduler.quota.model import Settings
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from luftpause.scheduler.translate import Replicas


def on_uvloop(test: Callable[[], Awaitable[None]]) -> None:
    """Raises what a callback raised, too."""
    raised: list[dict[str, object]] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
    assert not raised


def test_uvloop_is_as_it_says() -> None:
    async def test() -> None:
        assert not isinstance(asyncio.get_running_loop().call_later(1e-4, lambda: None), asyncio.TimerHandle)

    on_uvloop(test)


def test_a_governor_is_asked_while_its_timer_is_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor_host, "TICK_SECONDS_MIN", 0.0)  # a busy machine takes as long between two looks at the clock

    async def test() -> None:
        seconds = [1_000.0]
        governor = Governor(core.initial(Settings(), seconds[0]), clock=lambda: seconds[0])
        running = asyncio.create_task(governor.run())
        await asyncio.sleep(0)
        governor.post(TargetConfigured(governor.now, TargetSpec("api", (ScopeSpec("calls", "fixed", 1.0, 60.0),))))
        granted: list[str] = []

        def ask(want: str) -> None:
            governor.want(
                QuotaWanted(governor.now, "api", want, "picard", 0, (("calls", 1.0),), 5.0), lambda decision: granted.append(decision.want)
            )

        ask("a")
        seconds[0] += 10.0  # the lease of a is over, and nobody has looked yet
        for want in "bcd":
            governor._arm()
            ask(want)
        await asyncio.sleep(0.01)
        seconds[0] += 60.0
        governor.advance()
        assert granted[:2] == ["a", "b"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_uvloop(test)


def test_the_scheduler_is_told_of_something_while_its_timer_is_due_at_once() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        pauses = [1e-4, 1e-4, 1e-4]

        class Hurried(Host):
            def advance(self) -> float:
                if not pauses:
                    done.set()
                return pauses.pop() if pauses else 1.0

        host = Hurried(lambda state, _: SchedulerStep(state, (), None), None, replicas=lambda _: Replicas(()), clock=loop.time)
        running = asyncio.create_task(host.run())
        await asyncio.sleep(0)
        host._work()
        host._work()
        await asyncio.wait_for(done.wait(), 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_uvloop(test)
