"""Which settings has the rate governor: what shares which quota, who goes first, and where is the ledger kept?"""

from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self, cast, get_args

from pydantic import Field, field_validator, model_validator

from luftpause.kit.config_base import File, Name, Seconds, Section, Url

Profile = Literal["auto", "github", "copilot", "openai", "azure", "anthropic", "openrouter", "github-models"]
PROFILES: Final[tuple[str, ...]] = get_args(Profile)
EVERYBODY_ELSE: Final = "*"  # in `callers`
CALLER_BYTES_MAX: Final = 128
STORES: Final = ("redis://", "rediss://", "unix://")

Part = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ThresholdsConfig(Section):
    """Where the traffic light of a scope changes, as parts of what should be left by now."""

    green: Part = Field(default=0.40, description="GREEN from here on; below it AMBER: P1 and P2 are paced.")
    red: Part = Field(default=0.15, description="RED below: P2 is parked, P1 paced, P0 passes.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.red > self.green:
            raise ValueError(f"`red` ({self.red:g}) must not be above `green` ({self.green:g})")
        return self


class ScopeConfig(Section):
    """One limit of a target."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$")] = Field(
        description="As the provider's headers call it: requests, tokens, input_tokens, core, …"
    )
    kind: Literal["fixed", "bucket", "concurrent"] = Field(
        default="fixed", description="So many per window, then all anew; refilled all the time; so many at once."
    )
    limit: Positive = Field(description="Units per window, or at once.")
    window_seconds: Positive = Field(default=60, description="Length of the window, or the time in which a bucket fills.")
    charge: Literal["actual", "reserved"] = Field(default="actual", description="Whether the provider counts what was used or asked for.")
    burst: Annotated[float, Field(gt=0, le=60)] = Field(default=1, description="Capacity of a bucket, in limits.")
    counts: tuple[str, ...] = Field(
        default=(),
        description="Names in a cost that it counts, the first that is there; not given: what its name says.",
    )
    protect: tuple[Part, Part, Part] = Field(default=(0, 0.05, 0.25), description="Part that P0, P1 and P2 leave to better ones.")
    floor: Part = Field(default=0.05, description="Part that P2 gets in any case.")


class LadderConfig(Section):
    """How far `max_tokens` of P1 and P2 is cut before a run is told to compact and, at last, moved to another model."""

    max_tokens_factor: Share = Field(default=0.5, description="It becomes this part of what was asked for …")
    max_tokens_min: Annotated[int, Field(ge=1)] = Field(default=256, description="… but not less than this.")


class TargetConfig(Section):
    """What shares one allowance: an account of an API, or one model of it."""

    profile: Profile = Field(default="auto", description="Which limits it has at first; `auto` learns them from its answers.")
    scopes: tuple[ScopeConfig, ...] | None = Field(default=None, description="Its limits, in place of the profile's.")
    limits: dict[str, Positive] = Field(default={}, description="Other figures for limits of the profile, by scope: `core: 15000`.")
    penalty_seconds: Seconds | None = Field(
        default=None, description="What running into a limit that nobody tells costs at least; not given: the profile's."
    )
    declared_demand: Seconds = Field(default=0, description="Calls per second that P0 is known to want; room is kept from the start.")
    reservations: dict[str, Share] = Field(default={}, description="Part of each limit that a caller finds free when it comes, by caller.")
    ladder: LadderConfig = Field(default=LadderConfig(), description="What is cut of turns while the quota is about to end.")
    thresholds: ThresholdsConfig | None = Field(default=None, description="Traffic light of this target; not given: the governor's.")
    proxy: Url | None = Field(default=None, description="Upstream of `/proxy/<name>/…`; not given: this target has no proxy.")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        total = sum(self.reservations.values())
        if total > 1 + 1e-9:
            raise ValueError(f"`reservations` add up to {total:g}; at most 1 can be given away")
        if self.scopes is not None:
            names = [scope.name for scope in self.scopes]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two scopes are named {', '.join(twice)}; each needs a name of its own")
        return self


class ReplicaQuotaConfig(TargetConfig):
    """A target of its own for this replica; a plain text is its `target`: `quota: openai`."""

    target: str | None = Field(
        default=None,
        description="A target of `governor.targets` that it shares, or a profile for one of its own, named as the replica.",
    )

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_target(cls, value: Any) -> Any:
        return {"target": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        others = sorted(self.model_fields_set - {"target"})
        if self.target is not None and others:
            raise ValueError(f"`target` names settings that stand elsewhere; leave {', '.join(others)} out, or set them there")
        return self


class CallerConfig(Section):
    """How urgent a caller's calls are for quotas. `*` stands for everybody who is not named."""

    priority: Literal[0, 1, 2] | None = Field(
        default=None, description="0 critical, 1 standard, 2 background; not given: `interactive` is 1, `batch` 2."
    )
    may_claim: bool = Field(default=False, description="May say by `x-luftpause-priority` that a call is more urgent than that.")


class CascadeConfig(Section):
    """When callers that run into limits one after the other are served one at a time."""

    workflows: dict[str, dict[str, tuple[str, ...]]] = Field(
        default={}, description="Who works on with whose results: `caller: [callers behind it]`, or a plain list as a chain."
    )
    threshold: Annotated[int, Field(ge=2)] = Field(default=3, description="So many callers limited …")
    window_seconds: Positive = Field(default=30, description="… within this time make a cascade; it ends after as long without a limit.")

    @field_validator("workflows", mode="before")
    @classmethod
    def _lists_are_chains(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        rows = cast("dict[object, object]", value)
        return {name: _chain(cast("list[object]", each)) if isinstance(each, list | tuple) else each for name, each in rows.items()}


class GovernedProxyConfig(Section):
    """`/proxy/<target>/…`, for targets with a `proxy`."""

    open: bool = Field(default=False, description="Serve it although no token is set.")


class SharingConfig(Section):
    """With a `store` that several nodes share."""

    failure_mode: Literal["soft", "closed", "open"] = Field(
        default="soft",
        description="While the store is down: `soft` grants within a safe share (P2 waits, P1 at half rate), `closed` nothing, `open` all.",
    )
    safe_part: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="The part of its share of what is left that a node takes for safe then."
    )
    chunk_calls: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Sidecar mode, 20 for example: a node takes quota for so many calls at once and grants by itself; 0: each call asks.",
    )


class GovernorConfig(Section):
    store: str = Field(
        default="memory", description="`memory`: in the scheduler; `redis://host:port/db` (Redis or Valkey): shared by several nodes."
    )
    sharing: SharingConfig = Field(default=SharingConfig(), description="What a node does with a `store` that others use too.")
    state: File | None = Field(
        default=None, description="`memory`: file that the ledger is written to, so that it survives a restart of the scheduler."
    )
    state_seconds: Positive = Field(default=5, description="While it changes, the ledger is written this often.")
    policy: Literal["governor", "article"] = Field(
        default="governor", description="`article`: the rules as they were first published, for comparison; with `store: memory` only."
    )
    targets: dict[Name, TargetConfig] = Field(default={}, description="What shares an allowance, by name.")
    callers: dict[str, CallerConfig] = Field(default={}, description="How urgent whose calls are, by caller; `*`: everybody else's.")
    thresholds: ThresholdsConfig = Field(default=ThresholdsConfig(), description="Traffic light of targets without their own.")
    cascade: CascadeConfig = Field(default=CascadeConfig(), description="The cascade detector.")
    proxy: GovernedProxyConfig = Field(default=GovernedProxyConfig(), description="The governed reverse proxy.")
    quota_hold_seconds_max: Seconds = Field(
        default=120, description="A turn that would wait longer for quota gets its engine's 429 at once, with `Retry-After`."
    )
    lease_seconds: Positive = Field(default=120, description="A reservation that is not renewed is over after this, and counts as used.")
    wait_seconds_max: Seconds = Field(default=60, description="Longest time that one `reserve` waits for its answer.")

    @field_validator("store")
    @classmethod
    def _is_a_store(cls, store: str) -> str:
        if store != "memory" and not store.startswith(STORES):
            raise ValueError(f"must be `memory` or begin with {', '.join(STORES)}")
        return store

    @field_validator("callers")
    @classmethod
    def _are_callers(cls, callers: dict[str, CallerConfig]) -> dict[str, CallerConfig]:
        for name in callers:
            if not name or len(name.encode()) > CALLER_BYTES_MAX:
                raise ValueError(f"a caller's name has 1 to {CALLER_BYTES_MAX} bytes")
        return callers

    @model_validator(mode="after")
    def _one_ledger(self) -> Self:
        if self.state is not None and self.store != "memory":
            raise ValueError("`state` is for `store: memory`; Redis keeps the ledger by itself")
        if self.policy == "article" and self.store != "memory":  # its P0 passes always, and would ask the store without end
            raise ValueError("`policy: article` knows one node only; use `store: memory`, or `policy: governor`")
        return self


def _chain(callers: list[object]) -> dict[object, list[object]]:
    """Each works on with what the one before it made."""
    return {upstream: [downstream] for upstream, downstream in pairwise(callers)}
