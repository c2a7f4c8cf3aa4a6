"""Which floods are there?"""

from math import exp, log
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause_bench.flood.cells import Scene
from luftpause_bench.flood.workload import BATCH, INTERACTIVE, Agents, Workload, fit_a
from luftpause_fakes.engine_model import EngineParams

KV: Final = (0.75, 1.0, 1.5, 2.0, 3.0)
BATCH_AGENTS: Final = (16, 32, 48, 64)
SETS_SEED: Final = 20_261_130  # no constant of any policy was tuned on what it draws


def matrix(kv: tuple[float, ...] = KV, batch: tuple[int, ...] = BATCH_AGENTS) -> list[Scene]:
    return [Scene(f"KV x{each:g}, {agents} batch", fit_a(each, agents)) for agents in batch for each in kv]


def tools() -> list[Scene]:
    made = [Scene(f"tools {seconds:g} s, KV x{kv:g}", fit_a(kv, tool_seconds=seconds)) for seconds in (0.1, 2.0, 25.0) for kv in (1.0, 3.0)]
    made = [_longer(scene, 1200.0) if "25" in scene.name else scene for scene in made]
    return [*made, _longer(Scene("a tenth 25 s, KV x3", fit_a(3.0, slow_share=0.1)), 900.0)]


def _longer(scene: Scene, seconds: float) -> Scene:
    return replace(scene, workload=replace(scene.workload, seconds=seconds, warm_up_seconds=180.0))


def light() -> list[Scene]:
    """2,000 characters, 24 batch agents: engines don't queue."""
    return [Scene("light", fit_a(3.0, 24, context_tokens=(100, 500)))]


def ghosts() -> list[Scene]:
    """Half of eight interactive agents die in their first tool call; beside it the same with half of them from the beginning."""
    made: list[Scene] = []
    for kv in (1.0, 3.0):
        workload = replace(fit_a(kv, interactive=4), warm_up_seconds=150.0)
        dying = Agents("ghosts", INTERACTIVE, 4, 4, dying=1.0)
        made.append(Scene(f"ghosts, KV x{kv:g}", replace(workload, crowds=(*workload.crowds, dying))))
        made.append(Scene(f"none, KV x{kv:g}", workload))
    return made


def heavy() -> list[Scene]:
    """A caller with 60 runs against three with four each, all batch; and the three alone."""
    made: list[Scene] = []
    for kv in (1.0, 3.0):
        light = Agents("light", BATCH, 12, 3)
        for name, crowds in (("with", (light, Agents("heavy", BATCH, 60, 1))), ("alone", (light,))):
            made.append(Scene(f"{name}, KV x{kv:g}", replace(fit_a(kv), crowds=crowds)))
    return made


def coding() -> list[Scene]:
    """Coding agents of 20,000 to 100,000 tokens on two vLLM engines that hold a third of what they need together."""
    engine = EngineParams(
        family="vllm", kv_tokens=510_000, running_max=48, prefill_tokens_per_second=22_000, decode_step_seconds=0.0143,
        decode_sequence_seconds=0.000_595, decode_kv_token_seconds=0.0, chunk_tokens=8192, block_tokens=16, priority="vllm",
    )  # fmt: skip
    crowds = (
        Agents(
            "interactive", INTERACTIVE, 4, 4, context_tokens=(20_000, 20_000), context_spread=0.3, tools=(7, 7), call_tokens=(20, 480),
            final_tokens=(20, 480), result_tokens=950, tool_seconds=2.5, tool_spread=1.0, think_seconds=5.0,
        ),
        Agents(
            "batch", BATCH, 64, 4, context_tokens=(24_000, 24_000), context_spread=0.4, tools_mean=24, call_tokens=(20, 680),
            final_tokens=(20, 680), result_tokens=1150, tool_seconds=2.5, tool_spread=1.2,
        ),
    )  # fmt: skip
    return [
        Scene(
            "coding, KV 1/3",
            Workload(
                engine, crowds, one_gpu=True, shared_tokens=3000, answer_tokens_max=4000, context_tokens_max=120_000, ramp_seconds=60,
                warm_up_seconds=900, seconds=3600,
            ),
        )
    ]  # fmt: skip


# ---- random sets ------------------------------------------------------------------------------------------------


class Set(Struct, frozen=True):
    """`pressure`: what all runs hold together, as a multiple of the KV memory."""

    scene: Scene
    pressure: float
    tool_seconds: float


def _log_uniform(chance: Random, low: float, high: float) -> float:
    return exp(chance.uniform(log(low), log(high)))


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
