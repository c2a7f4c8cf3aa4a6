"""What do the agents of a flood do, and on which engines?"""

from math import exp
from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.events import TurnClass
from luftpause_fakes.engine_model import EngineParams

BATCH, INTERACTIVE = TurnClass.BATCH, TurnClass.INTERACTIVE


class Agents(Struct, frozen=True):
    """
    A crowd of agents of one kind: each begins a run as soon as (`think_seconds` after) its last one has ended.

    Ranges are uniform. `spread`: of lengths and times that are lognormal instead, as sigma. `tools_mean`: numbers of tool calls are
    geometric instead. `dying`: this part of them dies in its first tool call, without a word, and never comes again.

    Open loops: with `arrivals_per_minute` runs begin at random at that rate, with `burst_seconds` all agents begin one within a second,
    so often; both whatever became of the runs before. `forks`: a run's first call is that of as many sub-agents, of the crowd `fork`,
    each with the run's whole context before its own; it goes on when all have ended.
    """

    name: str
    turn_class: TurnClass
    agents: int
    callers: int = 1
    context_tokens: tuple[float, float] = (800, 2000)  # of the first prompt, beyond what all share
    context_spread: float = 0.0  # around the lower end
    tools: tuple[int, int] = (3, 3)
    tools_mean: float = 0.0
    call_tokens: tuple[int, int] = (20, 40)  # of an answer that calls a tool
    final_tokens: tuple[int, int] = (120, 256)
    result_tokens: int = 60  # of what a tool gives back
    result_spread: float = 0.0
    tool_seconds: float = 2.0
    tool_spread: float = 0.0
    slow_share: float = 0.0  # of tool calls are of a second, slow tool
    slow_seconds: float = 25.0
    think_seconds: float = 0.0
    dying: float = 0.0
    arrivals_per_minute: float = 0.0
    burst_seconds: float = 0.0
    forks: int = 0
    fork: "Agents | None" = None

    @property
    def closed(self) -> bool:
        return not (self.arrivals_per_minute or self.burst_seconds)

    def context(self, chance: Random) -> int:
        low, high = self.context_tokens
        if self.context_spread:
            return round(low * exp(self.context_spread * chance.gauss(0, 1)))
        return chance.randint(round(low), round(high))

    def tool_calls(self, chance: Random) -> int:
        return 1 + int(chance.expovariate(1 / self.tools_mean)) if self.tools_mean else chance.randint(*self.tools)

    def result(self, chance: Random) -> int:
        if self.result_spread:
            return max(1, round(self.result_tokens * exp(self.result_spread * chance.gauss(0, 1))))
        return self.result_tokens

    def pause(self, chance: Random) -> tuple[str, float]:
        """Which tool it is, and how long it takes."""
        slow = self.slow_share > 0 and chance.random() < self.slow_share
        seconds = self.slow_seconds if slow else self.tool_seconds
        if self.tool_spread:
            seconds *= exp(self.tool_spread * chance.gauss(0, 1))
        return f"{self.name}_{'slow' if slow else 'tool'}", seconds


class Workload(Struct, frozen=True):
    """Engines, crowds, and for how long they are watched. `one_gpu`: while n engines work each is n times slower."""

    engine: EngineParams
    crowds: tuple[Agents, ...]
    engines: int = 2
    one_gpu: bool = True
    shared_tokens: int = 250  # system prompt and tools: the same for all runs
    answer_tokens_max: int = 256
    context_tokens_max: int = 1 << 30
    way_seconds: float = 0.03  # from the scheduler's decision to the engine's queue: proxy, tokeniser, HTTP
    ramp_seconds: float = 2.0
    warm_up_seconds: float = 90.0
    seconds: float = 600.0

    @property
    def kinds(self) -> tuple[Agents, ...]:
        """The crowds and those of their sub-agents."""
        return (*self.crowds, *(crowd.fork for crowd in self.crowds if crowd.fork is not None))


# The published testbed, as `docs/decisions/0019` fits it: two engines on one GPU, contexts up to 8,000 characters, three tool calls.
KV_TOKENS: Final = 14_000
FIT_A: Final = EngineParams(kv_tokens=KV_TOKENS, priority="sglang")


def fit_a(kv: float = 1.0, batch: int = 48, interactive: int = 4, **changes: Any) -> Workload:
    """`kv`: KV memory as a multiple of the testbed's; `changes` to both crowds."""
    crowds = tuple(
        replace(crowd, **changes)
        for crowd in (
            Agents("interactive", INTERACTIVE, interactive, callers=interactive),
            Agents("batch", BATCH, batch, callers=batch),
        )
    )
    return Workload(replace(FIT_A, kv_tokens=round(kv * KV_TOKENS)), crowds)
