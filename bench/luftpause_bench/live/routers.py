"""How is sglang-router put before engines, as what luftpause is compared with?"""

import os
import shutil
from collections.abc import Sequence
from typing import Final, Literal

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.world import World
from luftpause_bench.proxy_cost.processes import free_ports

VARIABLE: Final = "LUFTPAUSE_BENCH_SGLANG_ROUTER"
Policy = Literal["cache_aware", "round_robin"]


def sglang_router() -> str:
    """The program. Raises LuftpauseError (`missing_program`)."""
    found = os.environ.get(VARIABLE) or shutil.which("sglang-router")
    if not found:
        raise LuftpauseError(f"sglang-router is not here: pip install sglang-router, or name it in {VARIABLE}", code="missing_program")
    return found


async def start(world: World, policy: Policy, engines: Sequence[str], *, name: str = "") -> str:
    """A running sglang-router; its URL. Its health checks have the period of our probes."""
    (port,) = free_ports(1)
    words = (
        sglang_router(), "launch", "--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1",
        "--prometheus-port", str(port + 1), "--worker-urls", *engines, "--policy", policy, "--worker-startup-check-interval", "1",
        "--worker-startup-timeout-secs", "60", "--health-check-interval-secs", "2", "--log-level", "error",
    )  # fmt: skip
    program = await world.program(name or f"router-{policy}", words)
    url = f"http://127.0.0.1:{port}"
    await program.ready(f"{url}/readiness")
    return url
