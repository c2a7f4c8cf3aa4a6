"""Is the load that engines report read rightly, whatever their pages look like?"""

import time

import pytest

from luftpause.scheduler.core.events import Load
from luftpause.scheduler.metrics_text import Flavour, Unread, load, recognise

SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:num_grammar_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 9.0
"""
SGLANG_PRIORITY = """\
sglang:num_running_reqs{model_name="m",priority=""} 6.0
sglang:num_running_reqs{model_name="m",priority="0"} 4.0
sglang:num_running_reqs{model_name="m",priority="-1"} 2.0
sglang:num_queue_reqs{model_name="m",priority=""} 3.0
sglang:num_queue_reqs{model_name="m",priority="0"} 3.0
"""
SGLANG_PRIORITY_WITHOUT_TOTAL = """\
sglang:num_running_reqs{model_name="m",priority="0"} 4.0
sglang:num_running_reqs{model_name="m",priority="-1"} 2.0
sglang:num_queue_reqs{model_name="m",priority="0"} 3.0
"""
SGLANG_ROUTER_MIXED = """\
sglang_num_running_reqs{model_name="m",priority="",worker_addr="http://a"} 6
sglang_num_running_reqs{model_name="m",priority="1",worker_addr="http://a"} 6
sglang_num_running_reqs{model_name="m",worker_addr="http://b"} 3
sglang_num_queue_reqs{model_name="m",priority="",worker_addr="http://a"} 1
sglang_num_queue_reqs{model_name="m",priority="1",worker_addr="http://a"} 1
sglang_num_queue_reqs{model_name="m",worker_addr="http://b"} 0
"""
SGLANG_DP_AND_SHARDS = """\
sglang:num_running_reqs{dp_rank="0",model_name="m",pp_rank="0",priority="",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="0",model_name="m",pp_rank="0",priority="3",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="0",model_name="m",pp_rank="1",priority="",tp_rank="1"} 6.0
sglang:num_running_reqs{dp_rank="0",model_name="m",pp_rank="1",priority="3",tp_rank="1"} 6.0
sglang:num_running_reqs{dp_rank="1",model_name="m",pp_rank="0",priority="",tp_rank="0"} 1.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",pp_rank="1",priority="",tp_rank="1"} 2.0
sglang:num_queue_reqs{dp_rank="1",model_name="m",pp_rank="0",priority="",tp_rank="0"} 1.0
"""
SGLANG_DP = """\
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="0"} 4.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{dp_rank="1",model_name="m",tp_rank="0"} 1.0
"""
SGLANG_ALL_SHARDS = """\
sglang:num_running_reqs{model_name="m",pp_rank="0",tp_rank="0"} 6.0
sglang:num_running_reqs{model_name="m",pp_rank="0",tp_rank="1"} 6.0
sglang:num_queue_reqs{model_name="m",pp_rank="0",tp_rank="0"} 3.0
sglang:num_queue_reqs{model_name="m",pp_rank="0",tp_rank="1"} 3.0
"""
SGLANG_ROUTER = """\
sglang_num_running_reqs{model_name="m",worker_addr="http://127.0.0.1:18112"} 2
sglang_num_running_reqs{model_name="m",worker_addr="http://127.0.0.1:18113"} 3
sglang_num_queue_reqs{model_name="m",worker_addr="http://127.0.0.1:18112"} 1
sglang_num_queue_reqs{model_name="m",worker_addr="http://127.0.0.1:18113"} 0
"""
VLLM = """\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 0.0
"""
VLLM_ENGINES = """\
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
"""
TWO_MODELS = """\
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_running{engine="0",model_name="other"} 30.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="other"} 20.0
"""
LLAMA = """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 3
llamacpp:n_busy_slots_per_decode 2.5
"""


@pytest.mark.parametrize(
    ("flavour", "page", "expected"),
    [
        ("sglang", SGLANG, Load(5, 2)),
        ("sglang", SGLANG.replace("sglang:", "sglang_"), Load(5, 2)),
        ("sglang", SGLANG_PRIORITY, Load(6, 3)),
        ("sglang", SGLANG.replace("sglang:", "sglang."), Load(5, 2)),
        ("sglang", SGLANG_PRIORITY_WITHOUT_TOTAL, Load(6, 3)),
        ("sglang", SGLANG_ROUTER_MIXED, Load(9, 1)),
        ("sglang", SGLANG_DP_AND_SHARDS, Load(7, 3)),
        ("sglang", SGLANG_DP, Load(10, 4)),
        ("sglang", SGLANG_ALL_SHARDS, Load(6, 3)),
        ("sglang", SGLANG_ROUTER, Load(5, 1)),
        ("vllm", VLLM, Load(4, 7)),
        ("vllm", VLLM_ENGINES, Load(7, 3)),
        ("llamacpp", LLAMA, Load(4, 3)),
    ],
)
def test_the_load_of_each_engine_is_read_and_the_engine_recognised(flavour: Flavour, page: str, expected: Load):
    assert load(page, flavour, ["m"]) == expected
    assert load(page, flavour) == expected
    assert recognise(page) == flavour


def test_only_rows_of_the_replicas_models_count():
    assert load(TWO_MODELS, "vllm", ["m"]) == Load(4, 1)
    assert load(TWO_MODELS, "vllm", ["m", "other"]) == Load(34, 21)
    assert load(TWO_MODELS, "vllm") == Load(34, 21)


def test_rows_count_where_the_engine_calls_its_model_otherwise_or_not_at_all():
    assert load(VLLM, "vllm", ["an-alias"]) == Load(4, 7)
    assert load(LLAMA, "llamacpp", ["m"]) == Load(4, 3)


def test_labels_may_hold_braces_quotes_commas_and_spaces():
    odd = r'{ model_name = "m" , path="}{ \" 9 \\",note="a,b" , } '
    page = f"vllm:num_requests_running{odd}4\nvllm:num_requests_waiting{odd}1 1796000649000\n"
    assert load(page, "vllm", ["m"]) == Load(4, 1)


@pytest.mark.parametrize(("text", "value"), [("1e+00", 1), ("1.0", 1), ("0", 0), ("1.2e2", 120), ("+3", 3)])
def test_numbers_come_in_many_forms(text: str, value: int):
    page = f"llamacpp:requests_processing {text}\nllamacpp:requests_deferred {text}"
    assert load(page, "llamacpp") == Load(value, value)


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-1", "many", ""])
@pytest.mark.parametrize("gauge", ["requests_processing", "requests_deferred"])
def test_a_value_that_is_no_count_makes_the_load_unknown(text: str, gauge: str):
    other = {"requests_processing": "requests_deferred", "requests_deferred": "requests_processing"}[gauge]
    found = load(f"llamacpp:{other} 1\nllamacpp:{gauge} {text}\n", "llamacpp")
    assert isinstance(found, Unread)
    assert gauge in found.why


def test_one_bad_row_of_several_makes_the_load_unknown():
    assert load(VLLM_ENGINES.replace("2.0", "NaN"), "vllm") == Unread("vllm:num_requests_waiting holds no number")
    assert load(VLLM_ENGINES.replace("2.0", "-2"), "vllm") == Unread("vllm:num_requests_waiting is negative")
    assert load(VLLM_ENGINES.replace("2.0", "1e300"), "vllm") == Unread("vllm:num_requests_waiting is too large for a count")


@pytest.mark.parametrize(
    "page",
    [
        "",
        "# HELP vllm:num_requests_running and vllm:num_requests_waiting are the names\n",
        "# HELP x\n  vllm:num_requests_running 1\n vllm:num_requests_waiting 1\n",
        'vllm:num_requests_running_total{engine="0"} 4.0\nvllm:num_requests_waiting_total{engine="0"} 1\n',
        "my_vllm:num_requests_running 4\nmy_vllm:num_requests_waiting 1\n",
        "vllm:num_requests_running 4\n",
        "vllm:num_requests_waiting 4\n",
        'vllm:num_requests_running{engine="0" 4\nvllm:num_requests_waiting{engine="0" 4\n',
        '{"detail":"Not Found"}',
        "<html>vllm:num_requests_running 4 vllm:num_requests_waiting 4</html>",
    ],
)
def test_a_page_without_both_gauges_says_nothing(page: str):
    assert isinstance(load(page, "vllm"), Unread)
    assert isinstance(load(page, None), Unread)
    assert recognise(page) is None


def test_another_engines_page_says_nothing_but_what_it_has():
    found = load(SGLANG, "vllm")
    assert isinstance(found, Unread)
    assert found.why == (
        "the gauges vllm:num_requests_running and vllm:num_requests_waiting are missing; "
        "it has sglang:num_grammar_queue_reqs, sglang:num_queue_reqs, sglang:num_running_reqs"
    )
    assert isinstance(load(VLLM, "llamacpp"), Unread)


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("", "the page is empty"),
        (" \n\n", "the page is empty"),
        ("<!doctype html><html>", "the page is HTML, no Prometheus text"),
        ('{"detail":"Not Found"}', "the page is JSON, no Prometheus text"),
        ("python_gc_objects_collected_total 1\n", "the gauges of SGLang, vLLM and llama.cpp are missing"),
        (
            'vllm:num_requests_active 1\nvllm:num_running_requests{a="b"} 4\n# HELP vllm:queue x\n',
            "the gauges of SGLang, vLLM and llama.cpp are missing; it has vllm:num_running_requests",
        ),
    ],
)
def test_what_a_page_without_gauges_is_stands_in_the_reason(page: str, why: str):
    assert load(page, None) == Unread(why)


def test_the_two_spellings_are_not_mixed():
    page = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\nsglang_num_running_reqs 10\nsglang_num_queue_reqs 20\n"
    assert load(page, "sglang") == Load(1, 2)


def test_lines_may_end_as_on_windows():
    assert load(VLLM.replace("\n", "\r\n"), "vllm") == Load(4, 7)


def test_a_page_of_two_megabytes_is_read_quickly():
    other = "".join(f'vllm:request_latency_bucket{{engine="0",model_name="m",le="{n}"}} {n}.0\n' for n in range(30_000))
    page = other + VLLM
    assert len(page) > 1_900_000
    started = time.process_time()
    assert load(page, "vllm", ["m"]) == Load(4, 7)
    assert time.process_time() - started < 2, "it takes hundredths"


# ---- a router's page, and part of it ----------------------------------------------------------------------------


def test_a_worker_that_shows_only_one_of_its_gauges_makes_the_sum_unknown():
    rows = SGLANG_ROUTER.splitlines(keepends=True)
    why = "some rows have only one of sglang_num_running_reqs and sglang_num_queue_reqs"
    for missing in rows:
        assert load(SGLANG_ROUTER.replace(missing, ""), "sglang") == Unread(why)


def test_one_worker_with_nonsense_makes_the_sum_unknown_also_within_priorities_and_shards():
    for page in (SGLANG_ROUTER_MIXED, SGLANG_DP_AND_SHARDS, SGLANG_PRIORITY_WITHOUT_TOTAL):
        assert isinstance(load(page.replace(" 6", " NaN", 1).replace(" 4.0", " NaN"), "sglang"), Unread)


# ---- KV memory --------------------------------------------------------------------------------------------------

SGLANG_KV = """\
sglang:max_total_num_tokens{model_name="m",pp_rank="0",tp_rank="0"} 16000.0
sglang:num_used_tokens{model_name="m",pp_rank="0",tp_rank="0"} 4000.0
sglang:token_usage{model_name="m",pp_rank="0",tp_rank="0"} 0.25
"""
VLLM_KV = """\
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",num_gpu_blocks="500",num_gpu_blocks_override="None"} 1.0
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (SGLANG + SGLANG_KV, Load(5, 2, 16_000, 4_000)),
        ((SGLANG + SGLANG_KV).replace("sglang:", "sglang_"), Load(5, 2, 16_000, 4_000)),
        (SGLANG + SGLANG_KV.replace("num_used_tokens", "kv_used_tokens"), Load(5, 2, 16_000, 4_000)),
        (SGLANG_ALL_SHARDS + SGLANG_KV + SGLANG_KV.replace('tp_rank="0"', 'tp_rank="1"'), Load(6, 3, 16_000, 4_000)),
        (SGLANG_DP + "".join(SGLANG_KV.replace("model", f'dp_rank="{n}",model') for n in range(2)), Load(10, 4, 32_000, 8_000)),
        (SGLANG_DP + SGLANG_KV, Load(10, 4)),  # of one rank of two
        (SGLANG + SGLANG_KV.replace("16000.0", "NaN"), Load(5, 2)),
        (SGLANG + SGLANG_KV.replace("4000.0", "-1"), Load(5, 2, 16_000)),
        (VLLM + VLLM_KV, Load(4, 7, 16_000, 4_000)),
        (VLLM + VLLM_KV.replace("block_size", 'kv_cache_size_tokens="15000",block_size'), Load(4, 7, 15_000, 3_750)),
        (VLLM + VLLM_KV.replace('num_gpu_blocks="500"', 'num_gpu_blocks="None"'), Load(4, 7)),
        (VLLM + VLLM_KV.replace("0.25", "NaN"), Load(4, 7, 16_000)),
        (VLLM + VLLM_KV.replace("0.25", "25"), Load(4, 7, 16_000)),
        (VLLM_ENGINES + VLLM_KV + VLLM_KV.replace('engine="0"', 'engine="1"').replace("0.25", "0.5"), Load(7, 3, 32_000, 12_000)),
        (VLLM_ENGINES + VLLM_KV, Load(7, 3)),  # of one engine of two
    ],
)
def test_the_kv_memory_is_read_where_it_is_reported_and_never_spoils_the_load(page: str, expected: Load):
    assert load(page, None, ["m"]) == expected
