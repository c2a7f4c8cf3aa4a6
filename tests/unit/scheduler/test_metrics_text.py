"""Is the load that engines report read rightly, whatever their pages look like?"""

import time

import pytest

from luftpause.scheduler.core.events import Load
from luftpause.scheduler.metrics_text import Flavour, load, recognise

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
    assert load(f"llamacpp:{other} 1\nllamacpp:{gauge} {text}\n", "llamacpp") is None


def test_one_bad_row_of_several_makes_the_load_unknown():
    assert load(VLLM_ENGINES.replace("2.0", "NaN"), "vllm") is None


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
    assert load(page, "vllm") is None
    assert recognise(page) is None


def test_another_engines_page_says_nothing():
    assert load(SGLANG, "vllm") is None
    assert load(VLLM, "llamacpp") is None


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
    assert time.process_time() - started < 0.1
