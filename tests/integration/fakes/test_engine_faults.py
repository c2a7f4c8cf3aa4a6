"""Do the faults that a test can order come as ordered?"""

import asyncio

import httpx
import pytest

from tests.integration.fakes.asking import TOOLS, body, events, until
from tests.support.processes import running


async def test_a_fault_breaks_the_stream_once_and_then_all_is_well(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"die_after_tokens": 3, "die_times": 1})
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post("/v1/chat/completions", json=body("[answer=30]", stream=True))
    assert (await http.post("/v1/chat/completions", json=body("[answer=30]", stream=True))).text.endswith("[DONE]\n\n")
    assert (await http.get("/_fake")).json()["failed"] == 1


async def test_it_can_die_before_the_head(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"die_after_tokens": 0})
    for stream in (True, False):
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post("/v1/chat/completions", json=body("Hello", stream=stream))


async def test_refusals_come_in_bursts_with_retry_after(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"refuse_status": 429, "refuse_times": 2, "refuse_retry_after": "3"})
    answers = [await http.post("/v1/chat/completions", json=body("Hello")) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "3"


async def test_an_error_can_come_as_an_event_after_some_text(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"error_after_tokens": 2, "error_status": 504})
    found = await events(await http.post("/v1/chat/completions", json=body("[answer=30]", stream=True)))
    assert [next(iter(each)) for each in found[:-1]].count("error") == 1
    assert found[-2]["error"]["code"] == 504
    assert (await http.post("/v1/chat/completions", json=body("[answer=30]"))).status_code == 504


async def test_a_stall_ends_when_the_client_leaves(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"stall_after_tokens": 1})
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/chat/completions", json=body("[answer=30]", stream=True), timeout=0.3)
    await until(http, lambda shown: shown["aborted"] == 1)


@pytest.mark.parametrize("form", ["missing_choices", "empty_delta", "every"])
async def test_the_usage_chunk_takes_the_forms_that_engines_send(http: httpx.AsyncClient, form: str) -> None:
    await http.post("/_fake", json={"usage": form})
    found = await events(
        await http.post("/v1/chat/completions", json=body("[answer=5]", stream=True, stream_options={"include_usage": True}))
    )
    last = found[-2]
    assert last["usage"]["completion_tokens"] == 5
    assert {
        "missing_choices": "choices" not in last,
        "empty_delta": last.get("choices") == [{"index": 0, "delta": {}}],
        "every": last.get("choices") == [],
    }[form]
    assert sum("usage" in each for each in found[:-1]) == (6 if form == "every" else 1)


async def test_tool_call_ids_can_be_the_same_in_every_answer(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"call_ids": "call_0"})
    for task in ("Herons? [calls=1]", "Storks? [calls=1]"):
        answer = (await http.post("/v1/chat/completions", json=body(task, tools=TOOLS))).json()
        assert answer["choices"][0]["message"]["tool_calls"][0]["id"] == "call_0"


async def test_gauges_can_lie_and_the_health_can_be_bad(http: httpx.AsyncClient) -> None:
    await http.post("/_fake", json={"claim_running": 24, "claim_waiting": 3, "health_status": 503, "health_seconds": 0})
    page = (await http.get("/metrics")).text
    assert "} 24.0" in page
    assert "} 3.0" in page
    assert (await http.get("/health")).status_code == 503
    await http.post("/_fake", json={"gauges": "missing"})
    assert (await http.get("/metrics")).status_code == 404
    await http.post("/_fake", json={"loading": True})
    for path in ("/health", "/metrics", "/v1/models"):
        assert (await http.get(path)).status_code == 503


async def test_an_impossible_fault_is_a_400_that_names_the_fields(http: httpx.AsyncClient) -> None:
    answer = await http.post("/_fake", json={"dye": 1})
    assert answer.status_code == 400
    assert "die_after_tokens" in answer.json()["error"]["message"]


async def test_gauges_can_stay_frozen_or_at_zero_while_turns_run() -> None:
    async with (
        running("fake-engine", "--port", "0", "--decode-seconds", "0.05") as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):

        async def told() -> int:
            return (await http.get("/v1/loads")).json()["loads"][0]["num_running_reqs"]

        busy = asyncio.create_task(http.post("/v1/chat/completions", json=body("[answer=5000]", stream=True)))
        await until(http, lambda shown: shown["running"] == 1)
        await http.post("/_fake", json={"gauges": "zero"})
        assert await told() == 0
        await http.post("/_fake", json={"gauges": "frozen"})
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        await until(http, lambda shown: shown["running"] == 0)
        assert await told() == 1
        await http.post("/_fake", json={"gauges": "true"})
        assert await told() == 0
