"""Who calls how often, and which provider limits them?"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from luftpause_fakes.provider_options import ProviderOptions

NAMES: Final = {0: ("picard", "worf"), 1: ("data", "seven", "belanna", "troi", "neelix"), 2: ("ralph", "scribe")}
ROUND_SECONDS: Final = 300.0


class Agent(Struct, frozen=True):
    """
    `calls` in each round of `round_seconds`, `at_once` of them. A round begins when the one before is over, at a multiple of that time.

    `round_seconds` 0: one call after the other, `pause_seconds` after each. `tokens`: of a call, least and most; drawn evenly.
    """

    name: str
    priority: int
    calls: int
    at_once: int
    round_seconds: float = ROUND_SECONDS
    pause_seconds: float = 1.0
    tokens: tuple[int, int] = (1, 1)


class Scene(Struct, frozen=True):
    """
    `goods`: the limit whose units are what is to be had. `api`: what clients that can do either call.

    `p0_per_second`: what the governor is told of P0's demand. `windows`: how often `quota` is to be had in `seconds`.
    """

    name: str
    about: str
    provider: ProviderOptions
    agents: tuple[Agent, ...]
    seconds: float
    goods: str
    quota: float
    windows: float
    api: Literal["rest", "chat"] = "rest"
    p0_per_second: float = 0.0

    @property
    def capacity(self) -> float:
        """Units that the provider gives in all that time."""
        return self.quota * self.windows

    def wanted(self, priority: int) -> int | None:
        """Calls of a class if nothing ever waited; None: it calls as fast as it can."""
        calls = 0
        for agent in self.agents:
            if agent.priority == priority:
                if not agent.round_seconds:
                    return None
                calls += agent.calls * round(self.seconds / agent.round_seconds)
        return calls


def squad(calls: tuple[int, int, int], at_once: tuple[int, int, int]) -> tuple[Agent, ...]:
    """Nine agents: two P0, five P1, two P2; calls per round and at once by class."""
    return tuple(Agent(name, priority, calls[priority], at_once[priority]) for priority, names in NAMES.items() for name in names)


def _crowd() -> tuple[Agent, ...]:
    """Twelve that talk to a model: two P0 once in 20 s, five P1 and five P2 without a break."""
    tokens = (4_000, 12_000)
    return (
        *(Agent(f"interactive-{n}", 0, 1, 1, 20.0, tokens=tokens) for n in range(2)),
        *(Agent(f"standard-{n}", 1, 1, 1, 0.0, tokens=tokens) for n in range(5)),
        *(Agent(f"batch-{n}", 2, 1, 1, 0.0, tokens=tokens) for n in range(5)),
    )


# 429, so that every client knows a refusal when it sees one: some do not retry 403 at all.
_GITHUB: Final = ProviderOptions(family="github", refusal_status=429)
_HOURS: Final = 7_200.0

GITHUB: Final = Scene(
    "github", "The incident: 269 % of 5,000 calls an hour; refusals are paid for and make the penalty longer.", _GITHUB,
    squad((60, 120, 200), (8, 8, 8)), _HOURS, "core", 5_000.0, 2.0,
)  # fmt: skip
KIND: Final = replace(
    GITHUB,
    name="github-kind",
    about="The same with a kind provider: 60 s, and refusals cost nothing.",
    provider=replace(_GITHUB, kind=True),
)
LIGHT: Final = replace(
    GITHUB,
    name="github-light",
    about="94 % of the quota: nothing to win, and nobody may be delayed.",
    agents=squad((21, 42, 70), (8, 8, 8)),
)
COPILOT: Final = Scene(
    "copilot80", "80 calls an hour, 300 % wanted; 10 a minute, with a penalty that grows sixfold.",
    ProviderOptions(family="copilot", refusal_status=429), squad((1, 2, 4), (1, 1, 2)), _HOURS, "premium_interactions", 80.0, 2.0,
    api="chat", p0_per_second=2 / ROUND_SECONDS,
)  # fmt: skip
TOKENS: Final = Scene(
    "llm-tpm", "A bucket of 200,000 tokens a minute, some 500 % wanted; refusals are free and say how long.",
    ProviderOptions(family="openai"), _crowd(), 1_800.0, "tokens", 200_000.0, 31.0, api="chat",
)  # fmt: skip
SCENES: Final = {scene.name: scene for scene in (GITHUB, KIND, COPILOT, TOKENS, LIGHT)}


def smaller(scene: Scene, times: int) -> Scene:
    """
    Quota and calls a so-and-so-manieth; the same share is wanted by as many agents, so more of them are at once for what there is.

    Other scenes stay: they have few calls.
    """
    if scene.goods != "core":
        return scene
    agents = tuple(replace(agent, calls=agent.calls // times) for agent in scene.agents)
    provider = replace(scene.provider, quota=scene.quota / times, per_minute=900 // times)
    return replace(scene, agents=agents, quota=scene.quota / times, provider=provider)
