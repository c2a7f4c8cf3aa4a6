"""Which floods are there?"""

from typing import Final

from msgspec.structs import replace

from luftpause_bench.flood.cells import Scene
from luftpause_bench.flood.workload import BATCH, INTERACTIVE, Agents, Workload, fit_a
from luftpause_fakes.engine_model import EngineParams

KV: Final = (0.75, 1.0, 1.5, 2.0, 3.0)
BATCH_AGENTS: Final = (16, 32, 48, 64)


def matrix(kv: tuple[float, ...] = KV, batch: tuple[int, ...] = BATCH_AGENTS) -> list[Scene]:
    return [Scene(f"KV x{each:g}, {agents} batch", fit_a(each, agents)) for agents in batch for each in kv]


def tools() -> list[Scene]:
    made = [Scene(f"tools {seconds:g} s, KV x{kv:g}", fit_a(kv, tool_seconds=seconds)) for seconds in (0.1, 2.0, 25.0) for kv in (1.0, 3.0)]
    made = [_longer(scene, 6000.0) if "25" in scene.name else scene for scene in made]
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


# Two vLLM engines on one GPU, as an 8B model has them on an H100.
LARGE: Final = EngineParams(
    family="vllm", kv_tokens=510_000, running_max=48, prefill_tokens_per_second=22_000, decode_step_seconds=0.0143,
    decode_sequence_seconds=0.000_595, decode_kv_token_seconds=0.0, chunk_tokens=8192, block_tokens=16, priority="vllm",
)  # fmt: skip


def coding() -> list[Scene]:
    """
    Coding agents of 20,000 to 100,000 tokens on engines that hold a third of what they need together; and sessions as long, with tools as
    fast and as slow, as the examples of TraceLab.
    """
    agents = (
        Agents(
            "interactive", INTERACTIVE, 4, 4, context_tokens=(20_000, 20_000), context_spread=0.3, tools=(7, 7), call_tokens=(20, 480),
            final_tokens=(20, 480), result_tokens=950, tool_seconds=2.5, tool_spread=1.0, think_seconds=5.0,
        ),
        Agents(
            "batch", BATCH, 64, 4, context_tokens=(24_000, 24_000), context_spread=0.4, tools_mean=24, call_tokens=(20, 680),
            final_tokens=(20, 680), result_tokens=1150, tool_seconds=2.5, tool_spread=1.2,
        ),
    )  # fmt: skip
    short = Agents(
        "batch", BATCH, 44, 44, context_tokens=(850, 2600), tools=(2, 8), call_tokens=(60, 320), final_tokens=(60, 320), result_tokens=450,
        result_spread=0.5, tool_seconds=0.28, tool_spread=0.6,
    )  # fmt: skip
    long = Agents(
        "batch", BATCH, 48, 4, context_tokens=(6000, 6000), context_spread=0.6, tools_mean=10, call_tokens=(100, 1400),
        final_tokens=(100, 1400), result_tokens=1600, result_spread=1.2, tool_seconds=0.7, tool_spread=1.2, slow_share=0.08,
        slow_seconds=30.0,
    )  # fmt: skip
    return [
        Scene("coding, KV 1/3", _sessions(510_000, agents, 3000)),
        Scene("short sessions, KV 1/3", replace(_sessions(30_000, _both(short), 250), warm_up_seconds=180, seconds=1200)),
        Scene("long sessions, KV 1/3", _sessions(200_000, _both(long), 12_500)),
    ]


def _sessions(kv_tokens: int, crowds: tuple[Agents, ...], shared_tokens: int) -> Workload:
    """Long enough for many ends of runs that take half an hour where prefixes are lost."""
    return Workload(
        replace(LARGE, kv_tokens=kv_tokens), crowds, one_gpu=True, shared_tokens=shared_tokens, answer_tokens_max=4000,
        context_tokens_max=min(120_000, round(kv_tokens * 0.45)), ramp_seconds=60, warm_up_seconds=3600, seconds=3 * 3600,
    )  # fmt: skip


def _both(batch: Agents) -> tuple[Agents, ...]:
    return replace(batch, name="interactive", turn_class=INTERACTIVE, agents=4, callers=4), batch


def _two(kv: float, interactive: Agents, batch: Agents, seconds: float = 1200.0) -> Workload:
    return replace(fit_a(kv), crowds=(interactive, batch), seconds=seconds, warm_up_seconds=180.0)


def open_loop() -> list[Scene]:
    """Runs begin at random, whatever becomes of those before; the last rate is more than a router gets through the engines."""
    made: list[Scene] = []
    for kv, rates in ((1.0, (40, 56, 68)), (3.0, (60, 85, 100, 125))):
        for rate in rates:
            interactive = Agents("interactive", INTERACTIVE, 8, 8, arrivals_per_minute=8)
            batch = Agents("batch", BATCH, 48, 48, arrivals_per_minute=rate)
            made.append(Scene(f"open, {rate} batch/min, KV x{kv:g}", _two(kv, interactive, batch)))
    return made


def bursts() -> list[Scene]:
    """Batch runs that come all at once each minute, beside steady interactive agents; and the other way round, each two minutes."""
    steady, crowd = Agents("interactive", INTERACTIVE, 4, 4), Agents("batch", BATCH, 48, 48)
    waves = Agents("interactive", INTERACTIVE, 16, 16, burst_seconds=120.0)
    made: list[Scene] = []
    for kv, size in ((1.0, 50), (3.0, 80)):
        storm = Agents("batch", BATCH, size, size, burst_seconds=60.0)
        made.append(Scene(f"bursts of {size} batch, KV x{kv:g}", _two(kv, steady, storm)))
        made.append(Scene(f"bursts of 16 interactive, KV x{kv:g}", _two(kv, waves, crowd)))
    return made


def forks() -> list[Scene]:
    """Twelve batch runs of 2,000 to 4,000 tokens, each with four sub-agents that begin with its whole context."""
    steady = Agents("interactive", INTERACTIVE, 4, 4)
    sub = Agents("sub-agents", BATCH, 0, context_tokens=(200, 400), tools=(2, 2))
    parent = Agents("batch", BATCH, 12, 12, context_tokens=(2000, 4000), forks=4, fork=sub)
    return [Scene(f"forks, KV x{kv:g}", _two(kv, steady, parent)) for kv in (1.0, 1.5, 3.0)]


def router() -> list[Scene]:
    """The scheduler sees one replica: a router before both engines."""
    return matrix((1.0, 3.0), (48,))
