"""One redis-server for all tests of this folder that leave it running; each uses targets of its own."""

from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer, redis_server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """For a test that stops it."""
    with redis_server() as server:
        yield server
