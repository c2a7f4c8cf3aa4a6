"""What do the flavours show of themselves: metrics, errors, faults?"""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from luftpause_fakes import engine_metrics
from luftpause_fakes.engine import EngineOptions, app_of
from luftpause_fakes.engine_faults import FaultError, Faults, changed, take
from luftpause_fakes.engine_flavours import FLAVOURS
from luftpause_fakes.engine_host import Feed, Gpu
from luftpause_fakes.engine_model import EngineCounters, EngineRequest, Gauges, Segment
from luftpause_fakes.engine_state import EngineState


def rows(flavour: str, *, by_priority: bool = False) -> dict[tuple[str, tuple], float]:
    gauges = Gauges(
        running=5, waiting=3, kv_used=400, kv_cached=100, kv_tokens=1000, running_by_priority={0: 4, 7: 1}, waiting_by_priority={0: 3}
    )  # fmt: skip
    counters = EngineCounters(finished=9, prompt_tokens=200, cached_tokens=50)
    snapshot = engine_metrics.Snapshot("m", gauges, counters, by_priority)
    families = text_string_to_metric_families(engine_metrics.page(flavour, snapshot))
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def one(found: dict[tuple[str, tuple], float], name: str) -> list[float]:
    return [value for (metric, _), value in found.items() if metric == name]


@pytest.mark.parametrize(
    ("flavour", "running", "waiting"),
    [
        ("sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs"),
        ("vllm", "vllm:num_requests_running", "vllm:num_requests_waiting"),
        ("llamacpp", "llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ],
)
def test_each_flavour_tells_running_and_waiting_under_its_own_names(flavour: str, running: str, waiting: str) -> None:
    found = rows(flavour)
    assert (one(found, running), one(found, waiting)) == ([5], [3])


def test_sglang_carries_its_labels_and_the_size_of_its_memory() -> None:
    found = rows("sglang")
    labels = (("engine_type", "unified"), ("model_name", "m"), ("moe_ep_rank", "0"), ("pp_rank", "0"), ("tp_rank", "0"))
    assert found["sglang:token_usage", labels] == 0.4
    assert found["sglang:max_total_num_tokens", labels] == 1000
    assert found["sglang:cache_hit_rate", labels] == 0.25


def test_with_priorities_sglang_has_a_total_and_one_series_per_class() -> None:
    series = {
        dict(labels)["priority"]: value
        for (name, labels), value in rows("sglang", by_priority=True).items()
        if name.endswith("num_running_reqs")
    }
    assert series == {"": 5, "0": 4, "7": 1}


def test_vllm_has_a_second_waiting_metric_whose_name_only_begins_alike() -> None:
    found = rows("vllm")
    assert sorted(one(found, "vllm:num_requests_waiting_by_reason")) == [0, 3]
    assert ("vllm:cache_config_info", (("block_size", "16"), ("engine", "0"), ("model_name", "m"), ("num_gpu_blocks", "62"))) in found


def test_error_bodies_are_flat_for_sglang_and_wrapped_for_the_others() -> None:
    flat = FLAVOURS["sglang"].not_found("x", ["m"]).body
    assert (flat["object"], flat["code"]) == ("error", 404)
    assert FLAVOURS["vllm"].not_found("x", ["m"]).body["error"]["type"] == "NotFoundError"
    assert FLAVOURS["llamacpp"].too_long(9, 5).body["error"]["type"] == "exceed_context_size_error"


def test_a_full_queue_is_a_stream_event_for_sglang_and_a_status_for_vllm() -> None:
    assert FLAVOURS["sglang"].queue_full("queue_full").in_stream
    assert FLAVOURS["sglang"].queue_full("queue_full").in_event()["error"]["message"] == "The request queue is full."
    assert "higher priority" in FLAVOURS["sglang"].queue_full("outranked").body["message"]
    assert not FLAVOURS["vllm"].queue_full("queue_full").in_stream


def test_orders_add_up_and_counts_run_down() -> None:
    faults = changed(Faults(), b'{"refuse_status": 429, "refuse_times": 2}')
    faults = changed(faults, b'{"loading": true}')
    assert (faults.refuse_status, faults.loading) == (429, True)
    assert [take(faults, "refuse") for _ in range(3)] == [True, True, False]
    assert not take(faults, "die")
    assert changed(faults, b'{"refuse_status": null}').refuse_status is None


@pytest.mark.parametrize("body", [b'{"dye_after_tokens": 1}', b'{"refuse_status": 200}', b'{"gauges": "true lies"}', b"no", b"[]"])
def test_an_impossible_order_names_the_fields(body: bytes) -> None:
    with pytest.raises(FaultError, match="the fields are refuse_status"):
        changed(Faults(), body)


async def test_the_size_of_the_memory_can_be_a_lie_and_all_gauges_old() -> None:
    seconds = [0.0]
    state = EngineState(EngineOptions(speed=1000, kv_tokens=1000), clock=lambda: seconds[0])
    state.order(b'{"claim_kv_tokens": 1300}')
    assert "sglang:max_total_num_tokens" in state.metrics()
    assert state.claimed().kv_tokens == 1300
    state.order(b'{"claim_kv_tokens": 0}')
    assert "sglang:max_total_num_tokens" not in state.metrics()
    state.order(b'{"claim_kv_tokens": null, "gauges_age_seconds": 2}')
    assert state.claimed().running == 0
    prompt = (Segment(1, 10),)
    state.host.submit(EngineRequest("a", prompt, (Segment(2, 900),)))
    for seconds[0], told in ((1.0, 0), (1.9, 0), (3.0, 1)):
        assert state.claimed().running == told
    state.order(b'{"gauges_age_seconds": 0}')
    assert state.claimed().running == 1
    state.host.gpu.stop()


async def test_engines_on_one_gpu_are_slower_while_the_other_works() -> None:
    seconds = [0.0]
    gpu = Gpu(1.0, clock=lambda: seconds[0])
    first, second = (EngineState(EngineOptions(), gpu) for _ in range(2))

    def run(name: str, *states: EngineState) -> list[int]:
        """Tokens that exist after two seconds, with all of them at work."""
        feeds = [state.host.submit(EngineRequest(name, (Segment(1, 10),), (Segment(2, 2000),))) for state in states]
        seconds[0] += 2.0
        gpu.catch_up()
        made = [state.host.engine.counters.generated_tokens for state in states]
        assert all(isinstance(feed, Feed) for feed in feeds)
        for state in states:
            state.host.cancel(name)
        return made

    (alone,) = run("a", first)
    before = first.host.engine.counters.generated_tokens
    both, other = run("b", first, second)
    assert alone > 200
    assert abs((both - before) / alone - 0.5) < 0.01
    assert abs(other / alone - 0.5) < 0.01
    gpu.stop()


async def test_vllm_tells_the_tokens_of_a_chat_the_same_for_the_same_beginning() -> None:
    transport = httpx.ASGITransport(app=app_of(EngineState(EngineOptions(flavour="vllm"))))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:

        async def tokens(text: str) -> list[int]:
            asked = {"model": "fake-1b", "messages": [{"role": "system", "content": "s" * 400}, {"role": "user", "content": text}]}
            return (await http.post("/v1/chat/completions/render", json=asked)).json()["token_ids"]

        one, other = await tokens("a" * 40), await tokens("b" * 80)
        assert (await http.post("/v1/chat/completions/render", json={})).status_code == 400
    assert (len(one), len(other)) == (4 + 100 + 4 + 10 + 4, 4 + 100 + 4 + 20 + 4)
    assert one[:108] == other[:108]
    assert one[108:] != other[108:]


async def test_a_body_beyond_the_limit_is_a_413() -> None:
    state = EngineState(EngineOptions(body_bytes_max=1000))
    transport = httpx.ASGITransport(app=app_of(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
        answer = await http.post("/v1/chat/completions", content=b"x" * 1001)
    assert answer.status_code == 413
    assert "1000 bytes" in answer.json()["message"]
