"""What can be set on the fake provider?"""

from msgspec import Struct
from msgspec.structs import replace

from luftpause_fakes.provider_families import FAMILIES, Family, FamilyName


class ProviderOptions(Struct, frozen=True):
    """
    None: as the family has it. `speed`: its windows and penalties pass so many times faster, and it tells them so; answers take as long.

    `kind`: refused calls cost nothing and never make a penalty longer. `refusal_status`: of GitHub's and Copilot's refusals, 403 or 429.
    """

    family: FamilyName = "github"
    host: str = "127.0.0.1"
    port: int = 8200
    model: str = "fake-model"
    quota: float | None = None  # of the family's main limit: the one that is listed last
    per_minute: int | None = None  # of the hidden limit; 0: there is none
    penalty_seconds: float | None = None
    kind: bool = False
    speed: float = 1.0
    refusal_status: int = 0
    latency_seconds: float | None = None  # of an answer, on average
    refusal_seconds: float = 0.05
    answer_tokens: int = 32
    seed: int = 0
    body_bytes_max: int = 64 * 1024 * 1024

    def details(self) -> Family:
        family = FAMILIES[self.family]
        limits, hidden = family.limits, family.hidden
        if self.kind:
            limits = tuple(replace(limit, refused_cost=0.0) for limit in limits)
        if self.quota is not None:
            limits = (*limits[:-1], replace(limits[-1], limit=self.quota))
        if hidden is not None:
            hidden = replace(
                hidden,
                calls=hidden.calls if self.per_minute is None else self.per_minute,
                penalty_seconds=hidden.penalty_seconds if self.penalty_seconds is None else self.penalty_seconds,
                growth=1.0 if self.kind else hidden.growth,
            )
            hidden = hidden if hidden.calls else None
        latency = family.latency_seconds if self.latency_seconds is None else self.latency_seconds
        return replace(family, limits=limits, hidden=hidden, latency_seconds=latency)
