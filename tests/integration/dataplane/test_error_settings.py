"""Do the settings that change a row of the error table change it, before a real scheduler? (`no_replica`, `on_busy`, `failover`)"""

import asyncio
from pathlib import Path
from typing import Any

from tests.integration.dataplane.test_error_table import SGLANG_FULL
from tests.integration.dataplane.world import body_of
from tests.support.cluster import Cluster, cluster
from tests.support.plane import Answer, Client, post

ENGINE = ("--decode-seconds", "0.01", "--health-seconds", "0")
NEXT_PROBE_SECONDS = 60.0  # none but the first within the test


async def ask(whole: Cluster) -> Answer:
    client = await Client.to(whole.url().removesuffix("/v1"))
    try:
        return await client.ask(post(body_of()), seconds=30)
    finally:
        client.writer.transport.abort()


def told(seen: dict[str, Any]) -> dict[str, int]:
    return {name: seen["events"].get(name, 0) for name in ("TurnStarted", "TurnFailed", "TurnReturned")}


async def test_as_the_original_a_full_queue_and_a_dead_engine_are_the_clients_to_deal_with(tmp_path: Path) -> None:
    async with cluster(
        tmp_path,
        engines=[ENGINE],
        planes=1,
        scheduler={"probe_seconds": NEXT_PROBE_SECONDS},
        dataplane={"on_busy": "pass", "failover": False},
    ) as whole:
        await whole.order(0, refuse_status=503, refuse_text=SGLANG_FULL, refuse_times=1)
        answer = await ask(whole)
        assert (answer.status, answer.body) == (503, SGLANG_FULL.encode())
        assert answer.headers["x-luftpause-replica"] == "engine-0"
        seen = await whole.quiet()
        assert told(seen) == {"TurnStarted": 1, "TurnFailed": 1, "TurnReturned": 0}
        assert (await whole.engine(0))["turns"] == 1

        whole.engines[0].kill()
        await whole.engines[0].ended()
        for number in (2, 3):
            answer = await ask(whole)
            assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
            assert answer.error["message"] == "engine engine-0: connection refused"
            seen = await whole.quiet()
            assert told(seen) == {"TurnStarted": number, "TurnFailed": number, "TurnReturned": 0}
            assert whole.health_of(seen) == {"healthy"}, "in rotation until a probe says otherwise"


async def test_a_turn_waits_for_an_engine_that_is_gone_and_goes_out_when_it_is_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, engines=[ENGINE], planes=1, scheduler={"probe_seconds": 0.2}) as whole:
        whole.engines[0].kill()
        await whole.engines[0].ended()
        await whole.until(lambda seen: whole.health_of(seen) == {"unhealthy"})
        turn = asyncio.create_task(ask(whole))
        await whole.until(lambda seen: [each["reason"] for each in seen["state"]["held_turns"]] == ["no_replica"])
        await whole.start_engine(0)
        answer = await turn
        assert (answer.status, answer.complete) == (200, True)
        assert b"[DONE]" in answer.body
        assert answer.headers["x-luftpause-hold-reason"] == "no_replica"
        assert int(answer.headers["x-luftpause-held-ms"]) > 0
        await whole.quiet()
