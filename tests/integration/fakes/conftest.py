"""Which fake engine do most tests of it use?"""

from collections.abc import AsyncGenerator

import httpx
import pytest

from tests.integration.fakes.asking import FAST
from tests.support.processes import Process, running


@pytest.fixture
async def engine() -> AsyncGenerator[Process]:
    async with running("fake-engine", *FAST) as process:
        yield process


@pytest.fixture
async def http(engine: Process) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=engine.at["http"], timeout=20, trust_env=False) as client:
        yield client
