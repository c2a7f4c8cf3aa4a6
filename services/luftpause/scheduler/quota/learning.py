"""Which limit is it that an answer tells of and nobody configured?

What its name says, and whether its rest and its reset belong to a bucket that refills or to a window that ends.
"""

import re
from math import inf
from typing import Final

from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Origin, Scope
from luftpause.scheduler.quota.samples import WINDOW_SECONDS, Sample
from luftpause.scheduler.quota.specs import Learns, ScopeSpec

LEARNED_SECONDS_MAX: Final = 31 * 86_400.0  # whatever a provider says
WINDOWS: Final = (1.0, 10.0, 60.0, 3_600.0, 18_000.0, 86_400.0, 604_800.0, 2_592_000.0)
FITS: Final = 0.05  # so far a bucket's figures may be off its window
TELLING: Final = 0.01  # of a limit used: below it, rounding decides
SHORT: Final = {"rpm": 60.0, "tpm": 60.0, "rph": 3_600.0, "rpd": 86_400.0, "tpd": 86_400.0}
GAUGES: Final = re.compile(r"unified_.*|copilot_(session|weekly)", re.ASCII)  # percent: what a call costs of it nobody says
RESOURCES: Final = frozenset(  # of GitHub: a call costs of one of them, not of all
    {
        "actions_runner_registration", "audit_log", "code_scanning_upload", "code_search", "dependency_snapshots", "graphql",
        "integration_manifest", "scim", "search", "source_import",
    }
)  # fmt: skip
_NAMED_WINDOW: Final = re.compile(rf"(?:by|_|per)({'|'.join(WINDOW_SECONDS)})$", re.ASCII | re.IGNORECASE)


def appears(learns: Learns, sample: Sample, now: float) -> Scope | None:
    """The scope that this sample begins; None: it says too little, or its kind is learned elsewhere (how many at once)."""
    if sample.limit is None or not 0 < sample.limit < inf or "concurrent" in sample.scope.lower():
        return None
    shape = next((shape for shape in learns.shapes if shape.name == sample.scope), None)
    if shape is not None:
        spec, origin = replace(shape, limit=sample.limit, window_seconds=_stated(sample) or shape.window_seconds), Origin.LEARNED
    else:
        spec, origin = _concluded(learns, sample)
    return replace(ledger.fresh(spec, now), origin=origin)


def _concluded(learns: Learns, sample: Sample) -> tuple[ScopeSpec, Origin]:
    window, told = bucket_window(sample), _told_window(sample)
    kind = "bucket" if window is not None and told in {None, window} else "fixed"
    counts = () if learns.by_name_only else counted(sample.scope)
    seconds = (window if kind == "bucket" else told) or window_above(sample.reset_seconds) or learns.pattern.window_seconds
    demand = learns.pattern.declared_demand if counts == ("requests",) else 0.0
    spec = replace(
        learns.pattern, name=sample.scope, kind=kind, limit=sample.limit, window_seconds=seconds, counts=counts, declared_demand=demand
    )  # fmt: skip
    return spec, Origin.LEARNED if _is_telling(sample) and kind == "fixed" else Origin.GUESSED


def refit(scope: Scope, sample: Sample) -> Scope:
    """
    With another kind, or a longer window, where this sample shows that the guess was wrong.

    A guessed bucket that does not fit once is a fixed window, for good: of two readings the one that promises less.
    """
    reset, spec = sample.reset_seconds, scope.spec
    if scope.origin is Origin.CONFIGURED:
        return scope
    if scope.origin is Origin.GUESSED and _is_telling(sample):
        window = bucket_window(sample)
        if spec.kind == "fixed" and window is not None:
            return replace(scope, spec=replace(spec, kind="bucket", window_seconds=window), reset_at=inf)
        if window is None:
            spec = replace(spec, kind="fixed")
            scope = replace(scope, spec=spec, origin=Origin.LEARNED)
    if spec.kind == "fixed" and reset is not None and reset > spec.window_seconds * (1 + FITS):
        return replace(scope, spec=replace(spec, window_seconds=window_above(reset) or spec.window_seconds))
    return scope


def bucket_window(sample: Sample) -> float | None:
    """The window of the bucket that is so full again after its reset; None: the figures are not those of a bucket."""
    if sample.limit is None or sample.remaining is None or not sample.reset_seconds or not 0 <= sample.remaining < sample.limit:
        return None
    seconds = sample.reset_seconds * sample.limit / (sample.limit - sample.remaining)
    nearest = min(WINDOWS, key=lambda window: abs(seconds / window - 1))
    return nearest if abs(seconds / nearest - 1) <= FITS else None


def _is_telling(sample: Sample) -> bool:
    if sample.limit is None or sample.remaining is None or not sample.reset_seconds:
        return False
    return 0 <= sample.remaining <= sample.limit * (1 - TELLING)


def _stated(sample: Sample) -> float | None:
    return min(sample.window_seconds, LEARNED_SECONDS_MAX) if sample.window_seconds else None


def _told_window(sample: Sample) -> float | None:
    if sample.window_seconds:
        return _stated(sample)
    name = _NAMED_WINDOW.search(sample.scope)
    return WINDOW_SECONDS[name[1].lower()] if name else SHORT.get(sample.scope.lower())


def window_above(reset: float | None) -> float | None:
    """The shortest usual window that can have so long to go."""
    return next((window for window in WINDOWS if reset and reset <= window * (1 + FITS)), None)


def counted(scope: str) -> tuple[str, ...]:
    """What a scope of this name counts, first what is meant, then what stands for it where the cost does not say."""
    name = scope.lower()
    if GAUGES.fullmatch(name) or name in RESOURCES:
        return ()
    if "token" in name or name in {"tpm", "tpd"}:
        return ("input_tokens", "tokens") if "input" in name else ("output_tokens", "tokens") if "output" in name else ("tokens",)
    return ("requests",)
