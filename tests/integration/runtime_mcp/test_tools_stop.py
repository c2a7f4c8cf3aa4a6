"""Do tools stop, at whatever moment of connecting they are asked to?"""

import asyncio

import pytest

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.runtime.tools.toolbox import Tools
from tests.support.ports import a_refusing_port

STEPS = 48  # of the event loop, from the start to the pause after the first failure


@pytest.mark.parametrize("first", range(0, STEPS, 8))
async def test_a_server_that_is_not_there_can_be_given_up_at_any_step(first: int) -> None:
    """The SDK makes an error of a cancellation that comes while it connects; the next attempt would begin then, and nobody end it."""
    config = RuntimeConfig(servers={"wiki": UpstreamConfig(url=f"http://127.0.0.1:{a_refusing_port()}/mcp")})
    async with asyncio.timeout(60):
        for steps in range(first, first + 8):
            async with Tools(config):
                for _ in range(steps):
                    await asyncio.sleep(0)
