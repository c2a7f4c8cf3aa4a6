"""What does the metrics page of each flavour say?"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from luftpause_fakes.engine_model import EngineCounters, Gauges

Json = dict[str, Any]
BLOCK_TOKENS = 16  # vLLM's KV memory is counted in blocks


class Snapshot(Struct, frozen=True):
    """The numbers behind a page; the gauges are what the engine claims, which may be a lie."""

    model: str
    gauges: Gauges
    counters: EngineCounters
    by_priority: bool


Row = tuple[str, Json, float]  # name, labels, value


def page(flavour: str, snapshot: Snapshot) -> str:
    """Prometheus text format."""
    lines: list[str] = []
    seen: set[str] = set()
    for name, labels, value in _PAGES[flavour](snapshot):
        if name in _KV_SIZES and not snapshot.gauges.kv_tokens:
            continue
        family = name.removesuffix("_total") if name.endswith("_total") else name
        if family not in seen:
            seen.add(family)
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_HELP.get(name.split(':')[-1], 'see the engine')}.", f"# TYPE {name} {kind}"]
        shown = ",".join(f'{key}="{label}"' for key, label in labels.items())
        lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value:g}")
    return "\n".join(lines) + "\n"


def _sglang(snapshot: Snapshot) -> Iterator[Row]:
    gauges, counters = snapshot.gauges, snapshot.counters
    labels: Json = {"model_name": snapshot.model, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    total = {**labels, "priority": ""} if snapshot.by_priority else labels  # the series with an empty priority is the total
    usage = gauges.kv_used / max(1, gauges.kv_tokens)
    yield from _by_priority("sglang:num_running_reqs", labels, total, snapshot.gauges.running, gauges.running_by_priority)
    yield from _by_priority("sglang:num_queue_reqs", labels, total, snapshot.gauges.waiting, gauges.waiting_by_priority)
    yield "sglang:num_grammar_queue_reqs", labels, 0.0
    yield "sglang:token_usage", labels, round(usage, 4)
    yield "sglang:num_used_tokens", labels, float(gauges.kv_used)
    yield "sglang:max_total_num_tokens", labels, float(gauges.kv_tokens)
    yield "sglang:cache_hit_rate", labels, round(counters.cached_tokens / max(1, counters.prompt_tokens), 4)
    yield "sglang:kv_available_tokens", labels, float(gauges.kv_tokens - gauges.kv_used - gauges.kv_cached)
    yield "sglang:kv_evictable_tokens", labels, float(gauges.kv_cached)
    yield "sglang:kv_used_tokens", labels, float(gauges.kv_used)
    yield "sglang:num_retracted_reqs", labels, 0.0
    yield "sglang:num_requests_total", labels, float(counters.finished)
    yield "sglang:num_aborted_requests_total", labels, float(counters.cancelled)
    yield "sglang:prompt_tokens_total", labels, float(counters.prompt_tokens)
    yield "sglang:generation_tokens_total", labels, float(counters.generated_tokens)
    yield "sglang:cached_tokens_total", labels, float(counters.cached_tokens)
    yield "sglang:num_retracted_requests_total", labels, float(counters.retracted)


def _by_priority(name: str, labels: Json, total: Json, value: int, classes: dict[int, int]) -> Iterator[Row]:
    yield name, total, float(value)
    if total is not labels:
        for priority, number in sorted(classes.items()):
            yield name, {**labels, "priority": str(priority)}, float(number)


def _vllm(snapshot: Snapshot) -> Iterator[Row]:
    gauges, counters = snapshot.gauges, snapshot.counters
    labels: Json = {"engine": "0", "model_name": snapshot.model}
    yield "vllm:num_requests_running", labels, float(snapshot.gauges.running)
    yield "vllm:num_requests_waiting", labels, float(snapshot.gauges.waiting)
    yield "vllm:num_requests_waiting_by_reason", {**labels, "reason": "capacity"}, float(snapshot.gauges.waiting)
    yield "vllm:num_requests_waiting_by_reason", {**labels, "reason": "deferred"}, 0.0
    yield "vllm:kv_cache_usage_perc", labels, round(gauges.kv_used / max(1, gauges.kv_tokens), 4)
    yield "vllm:prefix_cache_queries_total", labels, float(counters.prompt_tokens)
    yield "vllm:prefix_cache_hits_total", labels, float(counters.cached_tokens)
    yield "vllm:num_preemptions_total", labels, float(counters.retracted)
    yield "vllm:prompt_tokens_total", labels, float(counters.prompt_tokens)
    yield "vllm:prompt_tokens_cached_total", labels, float(counters.cached_tokens)
    yield "vllm:generation_tokens_total", labels, float(counters.generated_tokens)
    yield "vllm:request_success_total", {**labels, "finished_reason": "stop"}, float(counters.finished)
    yield "vllm:admission_rejections_total", {**labels, "reason": "max_num_queued_reqs"}, float(counters.refused)
    yield "vllm:admission_rejections_total", {**labels, "reason": "max_num_queued_tokens"}, 0.0
    blocks = {"block_size": str(BLOCK_TOKENS), "num_gpu_blocks": str(gauges.kv_tokens // BLOCK_TOKENS)}
    yield "vllm:cache_config_info", {**labels, **blocks}, 1.0


def _llamacpp(snapshot: Snapshot) -> Iterator[Row]:
    counters = snapshot.counters
    yield "llamacpp:prompt_tokens_total", {}, float(counters.prefilled_tokens)
    yield "llamacpp:prompt_tokens_cached_total", {}, float(counters.cached_tokens)
    yield "llamacpp:tokens_predicted_total", {}, float(counters.generated_tokens)
    yield "llamacpp:n_decode_total", {}, float(counters.steps)
    yield "llamacpp:requests_processing", {}, float(snapshot.gauges.running)
    yield "llamacpp:requests_deferred", {}, float(snapshot.gauges.waiting)


_PAGES: dict[str, Callable[[Snapshot], Iterator[Row]]] = {"sglang": _sglang, "vllm": _vllm, "llamacpp": _llamacpp}
_KV_SIZES = frozenset({"sglang:max_total_num_tokens", "sglang:kv_available_tokens", "vllm:cache_config_info"})
_HELP = {
    "num_running_reqs": "The number of running requests",
    "num_queue_reqs": "The number of requests in the waiting queue",
    "num_requests_running": "Number of requests in model execution batches",
    "num_requests_waiting": "Number of requests waiting to be processed",
    "requests_processing": "Number of requests processing",
    "requests_deferred": "Number of requests deferred",
}
