"""Is a replica's load read from the pages that say it, as a whole or not at all?"""

import pytest

from luftpause.kit.config import ReplicaConfig
from luftpause.scheduler.core.events import Load, ProbeOutcome
from luftpause.scheduler.engine_http import Answer
from luftpause.scheduler.loads import SECOND_PAGE_SECONDS, Found, Loads
from tests.unit.scheduler.test_loads_json import OTHER, RANK
from tests.unit.scheduler.test_metrics_text import LLAMA, SGLANG, SGLANG_KV, SGLANG_ROUTER, VLLM, VLLM_KV

OK, MISSED = ProbeOutcome.OK, ProbeOutcome.MISSED
SILENT = Answer(MISSED, problem="no answer within 2 s")
LOADS = b'{"loads":[' + RANK + b"," + OTHER + b"]}"


def page(text: str | bytes, status: int = 200) -> Answer:
    body = text if isinstance(text, bytes) else text.encode()
    return Answer(OK, status, body, "" if status == 200 else f"answers {status}")


class Pages:
    """Pages by URL; 404 for others. The clock is the test's."""

    def __init__(self, by_url: dict[str, Answer]) -> None:
        self.by_url = by_url
        self.asked: list[str] = []
        self.now = 0.0

    async def get(self, url: str) -> Answer:
        self.asked.append(url)
        return self.by_url.get(url, page(b'{"detail":"Not Found"}', 404))

    def loads(self, **config: object) -> Loads:
        return Loads(ReplicaConfig.model_validate({"name": "a", "url": "http://r", **config}), "http://r", self.get, lambda: self.now)


def pages(**by_url: str | Answer) -> Pages:
    return Pages({url: page(answer) if isinstance(answer, str) else answer for url, answer in by_url.items()})


ROUTER = {"load_from": ["http://r/engine_metrics"]}
TWO = {"load_from": ["http://a:1", "http://b:2/metrics"]}


async def test_an_engines_own_metrics_are_its_load():
    at = pages(**{"http://r/metrics": VLLM})
    assert await at.loads().ask() == Found(Load(4, 7), answered=True)
    assert at.asked == ["http://r/metrics"]


async def test_load_none_asks_nothing():
    at = pages(**{"http://r/metrics": VLLM})
    assert await at.loads(load="none", **TWO).ask() is None
    assert at.asked == []


PROPS = b'{"default_generation_settings":{"n_ctx":1024},"total_slots":4,"model_path":"m.gguf"}'


async def test_llama_cpp_tells_its_slots_on_a_page_of_its_own_which_is_asked_once_a_minute():
    at = pages(**{"http://r/metrics": LLAMA, "http://r/props": page(PROPS)})
    loads = at.loads()
    for at.now in (0.0, 2.0, 59.0):
        assert await loads.ask() == Found(Load(4, 3, slots=4), answered=True)
    assert at.asked == ["http://r/metrics", "http://r/props", "http://r/metrics", "http://r/metrics"]
    at.now = 60.0
    at.by_url["http://r/props"] = page(PROPS.replace(b"4,", b"8,"))
    assert await loads.ask() == Found(Load(4, 3, slots=8), answered=True)


@pytest.mark.parametrize(
    "props",
    [page("", 404), page("", 501), page("<html>"), page('{"role":"router"}'), page('{"total_slots":0}'), page('{"total_slots":-1}')],
)
async def test_where_llama_cpp_tells_no_slots_its_load_is_known_all_the_same(props: Answer):
    at = pages(**{"http://r/metrics": LLAMA, "http://r/props": props})
    loads = at.loads()
    assert await loads.ask() == Found(Load(4, 3), answered=True)
    at.by_url["http://r/props"] = page(PROPS)
    loads.anew()  # it was away
    assert await loads.ask() == Found(Load(4, 3, slots=4), answered=True)
    at.now, at.by_url["http://r/props"] = 60.0, SILENT
    assert await loads.ask() == Found(Load(4, 3, slots=4), answered=True)


async def test_other_engines_are_not_asked_for_slots():
    at = pages(**{"http://r/metrics": VLLM, "http://r/props": page(PROPS)})
    assert await at.loads().ask() == Found(Load(4, 7), answered=True)


# ---- routers ----------------------------------------------------------------------------------------------------


async def test_a_routers_merged_page_is_summed_over_its_workers():
    at = pages(**{"http://r/engine_metrics": SGLANG_ROUTER, "http://r/metrics": "smg_worker_pool_size 2\n"})
    assert await at.loads(**ROUTER).ask() == Found(Load(5, 1), answered=True)
    assert at.asked == ["http://r/engine_metrics"]


async def test_engines_pages_of_different_kinds_are_summed_and_a_url_without_path_means_metrics():
    at = pages(**{"http://a:1/metrics": SGLANG + SGLANG_KV, "http://b:2/metrics": VLLM + VLLM_KV})
    assert await at.loads(**TWO).ask() == Found(Load(9, 9, 32_000, 8_000), answered=True)
    at = pages(**{"http://a:1/metrics": SGLANG + SGLANG_KV, "http://b:2/metrics": LLAMA})
    assert await at.loads(**TWO).ask() == Found(Load(9, 5), answered=True)  # llama.cpp does not tell its KV memory


async def test_loads_as_sglang_has_them_for_routers_may_be_among_the_pages():
    at = pages(**{"http://a:1/v1/loads": page(LOADS), "http://b:2/metrics": VLLM})
    assert await at.loads(load_from=["http://a:1/v1/loads", "http://b:2"]).ask() == Found(Load(8, 9), answered=True)


@pytest.mark.parametrize(
    ("missing", "answered", "why"),
    [
        (SILENT, False, "no answer within 2 s"),
        (page("", 404), True, "answers 404"),
        (page(""), True, "the page is empty"),
        (page("<html>"), True, "the page is HTML, no Prometheus text"),
        (page(VLLM.replace("7.0", "NaN")), True, "vllm:num_requests_waiting holds no number"),
        (Answer(OK, 200, b"", "the answer is longer than 9 bytes"), True, "the answer is longer than 9 bytes"),
    ],
)
async def test_the_sum_of_a_part_is_no_load(missing: Answer, answered: bool, why: str):
    at = pages(**{"http://a:1/metrics": SGLANG, "http://b:2/metrics": missing})
    found = await at.loads(**TWO).ask()
    assert found is not None
    assert (found.load, found.answered) == (None, answered)
    assert found.problem == f"GET http://b:2/metrics: {why}; without it the sum over load_from is unknown"


async def test_the_load_is_back_when_all_pages_are():
    at = pages(**{"http://a:1/metrics": SGLANG})
    loads = at.loads(**TWO)
    assert (await loads.ask()).load is None
    at.by_url["http://b:2/metrics"] = page(VLLM)
    assert await loads.ask() == Found(Load(9, 9), answered=True)
    at.by_url["http://b:2/metrics"] = page(LLAMA)  # it was a vLLM: whose gauges these are is not guessed anew
    assert (await loads.ask()).load is None


# ---- /v1/loads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", ["auto", "sglang"])
async def test_sglang_without_metrics_is_asked_for_its_loads_and_from_then_on_for_nothing_else(load: str):
    at = pages(**{"http://r/v1/loads": page(LOADS)})
    loads = at.loads(load=load)
    assert await loads.ask() == Found(Load(4, 2, 200, 40), answered=True)
    at.asked.clear()
    assert (await loads.ask()).load == Load(4, 2, 200, 40)
    assert at.asked == ["http://r/v1/loads"]


async def test_when_the_loads_fail_the_metrics_are_tried_again():
    at = pages(**{"http://r/v1/loads": page(LOADS)})
    loads = at.loads()
    await loads.ask()
    at.by_url = {"http://r/metrics": page(SGLANG)}
    found = await loads.ask()
    assert (found.load, found.problem) == (None, "GET http://r/v1/loads: answers 404")
    assert await loads.ask() == Found(Load(5, 2), answered=True)


async def test_sglang_whose_metrics_vanish_is_read_from_its_loads():
    at = pages(**{"http://r/metrics": SGLANG})
    loads = at.loads()
    await loads.ask()
    at.by_url = {"http://r/v1/loads": page(LOADS)}
    assert (await loads.ask()).load == Load(4, 2, 200, 40)


async def test_an_engine_without_either_page_is_asked_for_the_second_one_rarely():
    at = pages()
    loads = at.loads()
    first = await loads.ask()
    assert (first.load, first.recognised, first.problem) == (None, False, "GET http://r/metrics: answers 404")
    assert at.asked == ["http://r/metrics", "http://r/v1/loads"]
    await loads.ask()
    assert at.asked.count("http://r/v1/loads") == 1
    at.now += SECOND_PAGE_SECONDS
    await loads.ask()
    assert at.asked.count("http://r/v1/loads") == 2
    loads.anew()
    at.by_url = {"http://r/v1/loads": page(LOADS)}
    assert (await loads.ask()).load == Load(4, 2, 200, 40)


@pytest.mark.parametrize(("load", "metrics"), [("vllm", page("", 404)), ("llamacpp", page("", 501)), ("auto", SILENT)])
async def test_other_engines_and_silent_ones_are_not_asked_for_it(load: str, metrics: Answer):
    at = pages(**{"http://r/metrics": metrics, "http://r/v1/loads": page(LOADS)})
    assert (await at.loads(load=load).ask()).load is None
    assert at.asked == ["http://r/metrics"]


async def test_rows_of_other_models_are_told_apart_by_what_the_replica_was_found_to_serve():
    two = VLLM + VLLM.replace('"m"', '"other"')
    loads = pages(**{"http://r/metrics": two}).loads()
    assert (await loads.ask()).load == Load(8, 14)
    loads.models = ("m",)
    assert (await loads.ask()).load == Load(4, 7)


@pytest.mark.parametrize(("models", "expected"), [(["m"], Load(4, 7)), (["m", "oth*"], Load(8, 14)), (["*"], Load(8, 14))])
async def test_rows_of_any_model_count_where_the_replica_has_patterns(models: list[str], expected: Load):
    two = VLLM + VLLM.replace('"m"', '"other"')
    assert (await pages(**{"http://r/metrics": two}).loads(models=models).ask()).load == expected
