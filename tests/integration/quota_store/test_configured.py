"""`governor.store: redis://…`: schedulers that share it have one pool, whoever asks where."""

import asyncio
import secrets
from contextlib import AsyncExitStack

import pytest

from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError
from luftpause.kit.quota_port import Granted, NotNow
from luftpause.scheduler.governor.app import Governing, governing
from luftpause.scheduler.governor.store.configured import node_name, shared_store
from luftpause.scheduler.governor.store.redis_store import RedisStore
from luftpause.scheduler.governor.store.view import sharing_metrics, sharing_view
from tests.support.quota_node import eventually
from tests.support.redis_server import RedisServer


def config(store: str, target: str) -> Config:
    scopes = [{"name": "core", "kind": "fixed", "limit": 40, "window_seconds": 3600, "protect": [0, 0, 0], "floor": 0}]
    thresholds = {"green": 0, "red": 0}
    return Config.model_validate({"governor": {"store": store, "targets": {target: {"scopes": scopes, "thresholds": thresholds}}}})


async def reserve(one: Governing, target: str, want: str, wait_seconds: float = 0.0) -> Granted | NotNow:
    answer = await one.port.reserve(target, want, caller="c", priority=0, cost={"core": 1.0}, wait_seconds=wait_seconds)
    assert isinstance(answer, Granted | NotNow), answer
    return answer


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no outage."""
    assert RedisStore.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(RedisStore.__init__.__kwdefaults__, "answer_seconds", 5.0)
    monkeypatch.setitem(RedisStore.__init__.__kwdefaults__, "down_seconds", 20.0)


@pytest.mark.usefixtures("patient")
async def test_two_schedulers_have_one_pool(redis: RedisServer) -> None:
    target = f"t{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        both = [governing(config(redis.url, target)) for _ in range(2)]
        for one in both:
            running = asyncio.create_task(one.governor.run())
            stack.push_async_callback(asyncio.gather, running, return_exceptions=True)
            stack.callback(running.cancel)
        answers = [await reserve(both[at % 2], target, f"w{at}") for at in range(44)]
        assert sum(isinstance(one, Granted) for one in answers) == 40, "also for whoever does not want to wait"
        granted = [one for one in answers if isinstance(one, Granted)]
        assert len({one.fence for one in granted}) == 40
        waits = asyncio.create_task(reserve(both[1], target, "late", wait_seconds=20.0))
        await both[0].port.release(target, "w0", granted[0].fence)
        assert isinstance(await waits, Granted)
        shown = [sharing_view(one.governor.sharing) for one in both if one.governor.sharing is not None]
        assert [one.mode for one in shown] == ["up", "up"]
        assert [one.nodes[target] for one in shown] == [2, 2]
        assert shown[0].node != shown[1].node
        sharing = both[0].governor.sharing
        assert sharing is not None
        samples = {
            sample.name: sample.value
            for family in sharing_metrics(sharing)
            for sample in family.samples
            if sample.labels != {"mode": "down"}
        }
        assert samples["luftpause_scheduler_quota_store_nodes"] == 2
        await eventually("all is told", lambda: sharing_view(sharing).untold == 0)


def test_every_start_is_a_node_of_its_own() -> None:
    assert node_name() != node_name()


def test_a_url_that_cannot_be_read_is_an_error_that_says_how() -> None:
    with pytest.raises(ConfigError, match=r"governor\.store: .*redis://host:port/db"):
        shared_store(config("redis://host:port-that-is-none/0", "t").governor)
