"""Which random engines and agents are there, so that a policy is not judged by one testbed alone?"""

from math import exp, log
from random import Random
from typing import Final

from msgspec import Struct

from luftpause_bench.flood.cells import Scene
from luftpause_bench.flood.workload import BATCH, INTERACTIVE, Agents, Workload
from luftpause_fakes.engine_model import EngineParams

SETS: Final = 40
SETS_SEED: Final = 61_803  # first drawn for the report: no constant of any policy was tuned on what it draws
DEV_SEED: Final = 7  # for work on policies


class Set(Struct, frozen=True):
    """`pressure`: what all runs hold together, as a multiple of the KV memory."""

    scene: Scene
    pressure: float
    tool_seconds: float


def _log_uniform(chance: Random, low: float, high: float) -> float:
    return exp(chance.uniform(log(low), log(high)))


def sets(seed: int) -> list[Scene]:
    return [random_set(number, seed).scene for number in range(SETS)]


def random_set(number: int, seed: int = SETS_SEED) -> Set:
    """Engines and agents at random; nothing is arranged but that the KV memory is between 0.2 and 2.5 times what the runs need."""
    chance = Random(seed * 1000 + number)
    choice, uniform = chance.choice, chance.uniform
    family = ("sglang", "vllm")[number % 2]
    engines = choice((1, 2, 2, 4))
    batch = choice((16, 24, 32, 48, 64)) * max(1, engines // 2)
    interactive = choice((2, 4, 8))
    context, spread = _log_uniform(chance, 800, 24_000), choice((0.2, 0.4, 0.6))
    shared, tools = choice((250, 800, 2000)), choice((3, 6, 12))
    result, call, final = round(uniform(0.02, 0.12) * context + 30), choice((30, 60, 120, 250)), choice((100, 200, 400))
    tool_seconds, tool_spread = _log_uniform(chance, 0.1, 8), choice((0.0, 0.5, 1.0))
    wanted = (batch + interactive) * (context + tools / 2 * (result + call))
    pressure = _log_uniform(chance, 0.4, 5)
    kv = max(wanted / pressure / engines, 3 * (context * 2 + tools * 3 * (result + call) + final * 2)) + shared
    step = uniform(0.005, 0.025)
    engine = EngineParams(
        family="vllm" if family == "vllm" else "sglang", priority="vllm" if family == "vllm" else "sglang", kv_tokens=round(kv),
        prefill_tokens_per_second=_log_uniform(chance, 4000, 40_000), prefill_step_seconds=choice((0.002, 0.005)), decode_step_seconds=step,
        decode_sequence_seconds=_log_uniform(chance, 0.03, 0.8) / 1000, decode_kv_token_seconds=_log_uniform(chance, 0.1, 0.8) * step / kv,
        chunk_tokens=choice((1024, 2048, 8192)), running_max=choice((None, None, 256, 48)), block_tokens=16 if family == "vllm" else 1,
    )  # fmt: skip
    slow = choice((0.0, 0.0, 0.1))
    crowds: list[Agents] = []
    for name, turn_class, agents, callers, factor, think in (
        ("interactive", INTERACTIVE, interactive, interactive, uniform(0.5, 1), choice((0.0, 0.0, 4.0))),
        ("batch", BATCH, batch, choice((1, 4, batch)), 1.0, 0.0),
    ):
        crowds.append(
            Agents(
                name, turn_class, agents, callers, context_tokens=(context * factor, context * factor), context_spread=spread,
                tools_mean=tools * factor, call_tokens=(call // 2, call * 3 // 2), final_tokens=(final // 2, final * 3 // 2),
                result_tokens=result, tool_seconds=tool_seconds, tool_spread=tool_spread, slow_share=slow, think_seconds=think,
            )
        )  # fmt: skip
    workload = Workload(
        engine, tuple(crowds), engines, one_gpu=engines == 2 and chance.random() < 0.3, shared_tokens=shared,
        answer_tokens_max=choice((512, 1024)), context_tokens_max=round(kv * 0.45), ramp_seconds=20, warm_up_seconds=200, seconds=900,
    )  # fmt: skip
    return Set(Scene(f"set {number}", workload, choice((0.25, 1.0, 2.0))), wanted / kv / engines, tool_seconds)
