"""What do the tests with clients of others share?"""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.cluster import Cluster, cluster
from tests.support.proxied import ENGINES


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    """A scheduler, a dataplane and two fake engines; its tests run in the loop of the package."""
    async with cluster(tmp_path_factory.mktemp("proxy"), engines=ENGINES, planes=1, scheduler={"policy": "guard"}) as whole:
        yield whole
