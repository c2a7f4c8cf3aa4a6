"""Which limits does a known provider have, and what does a call cost there?

A profile says what is documented; what depends on the account is learned from the answers, or given as `limits`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.quota.learning import counted
from luftpause.scheduler.quota.model import Cost
from luftpause.scheduler.quota.specs import Ladder, Learns, ScopeSpec, TargetSpec

HOUR, DAY = 3_600.0, 86_400.0
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LEAVES: Final = (0.0, 0.20, 0.25)  # of a short window, to P0: its rounds come at once, which no forecast of the minute before tells
GITHUB_WRITE_POINTS: Final = 5.0  # docs.github.com: a request that changes something


class Profile(Struct, frozen=True, gc=False):
    """`scopes`: limits that hold for every account. Others appear as `learns` says. `penalty_seconds`: as of `TargetSpec`."""

    scopes: tuple[ScopeSpec, ...] = ()
    learns: Learns = Learns()
    penalty_seconds: float = 0.0


def _tokens(name: str, *counts: str, reserved: bool = False) -> ScopeSpec:
    return ScopeSpec(name, "bucket", 1.0, charge="reserved" if reserved else "actual", counts=(*counts, "tokens"))


_REQUESTS = ScopeSpec("requests", "bucket", 1.0, counts=("requests",))

# GitHub keeps 900 points in any minute: a bucket of 600 that gets 300 a minute never lets more out, and lets 600 go at once.
_GITHUB = Profile(
    scopes=(
        ScopeSpec("core", "fixed", 5_000.0, HOUR, counts=("requests",)),
        ScopeSpec("points", "bucket", 300.0, burst=2.0, protect=LEAVES, counts=("points", "requests")),
        ScopeSpec("content", "bucket", 40.0, protect=LEAVES),  # the same for 80 that create something
        ScopeSpec("at_once", "concurrent", 100.0, counts=("requests",)),
    ),
    learns=Learns(by_name_only=True, unnamed="core"),  # search, graphql, ...: another resource is another limit
    penalty_seconds=60.0,
)

PROFILES: Final[dict[str, Profile]] = {
    "github": _GITHUB,
    "copilot": Profile(
        (ScopeSpec("requests", "fixed", 80.0, HOUR, counts=("requests",)),), Learns(by_name_only=True), penalty_seconds=30.0
    ),
    # the greater of the estimate and max_tokens is debited, and does not come back
    "openai": Profile(learns=Learns((_REQUESTS, _tokens("tokens", reserved=True)))),
    "azure": Profile(
        learns=Learns(
            (
                ScopeSpec("requests", "fixed", 1.0, 10.0, counts=("requests",)),
                ScopeSpec("tokens", "fixed", 1.0, 60.0, charge="reserved", counts=("tokens",)),
            )
        )
    ),
    "anthropic": Profile(
        learns=Learns((_REQUESTS, _tokens("input_tokens", "input_tokens"), _tokens("output_tokens", "output_tokens"), _tokens("tokens")))
    ),
    "openrouter": Profile(learns=Learns((ScopeSpec("requests", "fixed", 1.0, DAY, counts=("requests",)),))),
    "github-models": Profile(
        (ScopeSpec("at_once", "concurrent", 5.0, counts=("requests",)),),  # enforced, but never told in a header
        Learns(
            (
                ScopeSpec("requests", "fixed", 1.0, counts=("requests",)),
                ScopeSpec("tokens", "fixed", 1.0, counts=("tokens",)),
                ScopeSpec("UserByModelByDay", "fixed", 1.0, DAY, counts=("requests",)),
                ScopeSpec("UserByModelByMinute", "fixed", 1.0, counts=("requests",)),
            )
        ),
    ),
    "auto": Profile(),
}  # fmt: skip


def target_spec(
    name: str,
    profile: str = "auto",
    *,
    scopes: Sequence[ScopeSpec] | None = None,
    limits: Mapping[str, float] | None = None,
    penalty_seconds: float | None = None,
    declared_demand: float = 0.0,
    lights: tuple[float, float] | None = None,
    reservations: Mapping[str, float] | None = None,
    ladder: Ladder | None = None,
) -> TargetSpec:
    """
    A target after a profile.

    `scopes`: its limits in place of the profile's; without `counts` they count what their name says. `limits`: units by scope, for limits
    that the profile knows. `declared_demand`: calls per second that P0 is known to want. `lights`: green and red for all scopes.
    `reservations`: part of each limit by caller. ValueError: it names the mistake and what is known.
    """
    if profile not in PROFILES:
        raise ValueError(f"target {name!r}: no profile is called {profile!r}; known: {', '.join(PROFILES)}")
    known = PROFILES[profile]
    shapes = {shape.name: shape for shape in known.learns.shapes}
    documented = {scope.name: scope for scope in known.scopes}
    found = documented if scopes is None else {scope.name: _counting(scope, documented | shapes) for scope in scopes}
    for scope, limit in (limits or {}).items():
        found = found | {scope: replace(_named(name, scope, found | shapes), limit=limit)}

    def fitted(scope: ScopeSpec) -> ScopeSpec:
        green, red = lights or (scope.green, scope.red)
        demand = declared_demand if "requests" in scope.counts and scope.kind != "concurrent" else scope.declared_demand
        return replace(scope, green=green, red=red, declared_demand=demand)

    pattern = replace(fitted(known.learns.pattern), declared_demand=declared_demand)
    return TargetSpec(
        name,
        tuple(fitted(scope) for scope in found.values()),
        known.penalty_seconds if penalty_seconds is None else penalty_seconds,
        profile=profile,
        learns=replace(known.learns, shapes=tuple(fitted(shape) for shape in shapes.values()), pattern=pattern),
        reservations=tuple(sorted((caller, share) for caller, share in (reservations or {}).items() if share)),
        ladder=ladder or Ladder(),
    )


def _counting(scope: ScopeSpec, documented: Mapping[str, ScopeSpec]) -> ScopeSpec:
    same = documented.get(scope.name)
    return scope if scope.counts else replace(scope, counts=counted(scope.name) if same is None else same.counts)


def _named(target: str, scope: str, known: Mapping[str, ScopeSpec]) -> ScopeSpec:
    if scope not in known:
        names = ", ".join(sorted(known)) or "none, give it under scopes"
        raise ValueError(f"target {target!r}: limits names the scope {scope!r}; known here: {names}")
    return known[scope]


def call_cost(profile: str, method: str = "GET") -> Cost:
    """What one HTTP call without a model costs: a request, and what the provider counts beside it."""
    if profile != "github":
        return (("requests", 1.0),)
    if method.upper() in SAFE_METHODS:
        return ("points", 1.0), ("requests", 1.0)
    return ("content", 1.0), ("points", GITHUB_WRITE_POINTS), ("requests", 1.0)


def turn_cost(input_tokens: float, output_tokens: float) -> Cost:
    """What one turn costs: a request and its tokens, under each name that a scope may count them by. Tokens are above 0."""
    return (
        ("input_tokens", input_tokens),
        ("output_tokens", output_tokens),
        ("requests", 1.0),
        ("tokens", input_tokens + output_tokens),
    )
