"""A dataplane whose governed proxy goes to servers of the test."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from luftpause.dataplane.app import Dataplane
from luftpause.dataplane.proxy.proxy import Governed
from luftpause.kit.auth import Tokens
from luftpause.kit.config_governor import GovernorConfig
from tests.support.fake_scheduler import FakeScheduler
from tests.support.plane import running_plane
from tests.support.quota_double import QuotaDouble


def governed(quota: QuotaDouble, *, is_open: bool = True, **targets: str | None) -> Governed:
    """`targets`: base URL by name; None: the target has no proxy."""
    rows = {name: {"proxy": url} if url is not None else {} for name, url in targets.items()}
    if "github" in rows:
        rows["github"]["profile"] = "github"
    callers = {"root": {"priority": 0}, "claimant": {"may_claim": True}}
    config = {"targets": rows, "proxy": {"open": is_open}, "callers": callers}
    return Governed(GovernorConfig.model_validate(config), quota)


@contextlib.asynccontextmanager
async def proxying(
    quota: QuotaDouble, *, tokens: Tokens | None = None, is_open: bool = True, targets: dict[str, str | None], **config: Any
) -> AsyncGenerator[Dataplane]:
    own = governed(quota, is_open=is_open, **targets)
    async with running_plane(FakeScheduler(), tokens=tokens, governed=own, **config) as plane:
        yield plane
