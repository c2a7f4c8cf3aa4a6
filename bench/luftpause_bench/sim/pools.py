"""What may a replica take, by its reports and its own answers, read anew from the specification?"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from typing import Final

from luftpause.scheduler.core.events import Load, ProbeOutcome, ReplicaSpec
from luftpause.scheduler.core.settings import Settings

BURST_MIN: Final = 8
ARRIVING_SECONDS: Final = 0.1  # a turn that was placed so lately may be shown as waiting while it is on its way in
ARRIVALS_MAX: Final = 8
GONE: Final = ReplicaSpec("", "")  # of a replica that is not configured (any more)


def serves_model(models: tuple[str, ...], model: str) -> bool:
    """`*` in a name stands for anything."""
    return model in models or any("*" in name and fnmatchcase(model, name) for name in models)


@dataclass(slots=True, eq=False)
class Pool:
    """A replica. `most` is the most that may be in flight by its reports and its own answers: none, if nothing caps it."""

    spec: ReplicaSpec
    models: tuple[str, ...]
    flying: int = 0
    passes: int = 0
    seen: int = 0  # of those in flight when it last reported
    load: Load | None = None
    load_at: float = -inf
    measured: bool = False  # its load could be read once
    most: int | None = None
    lifted: bool = False  # `most` was given up for want of knowledge: the right one may still hold
    arrivals: list[float] = field(default_factory=list[float])  # when turns were placed since its last report
    peak: int = 0
    health: str = "unknown"
    misses: int = 0
    delivered_at: float = -inf
    refused: bool = False  # it gave a turn back as busy since its last good probe
    full_when_empty: bool = False  # and did so with nothing of ours in flight
    rests: bool = False  # what is placed there is not known well enough
    passes_most: int | None = None  # as `most`, for single passes
    pass_refused: bool = False

    # ---- what it says -------------------------------------------------------------------------------------------

    def answered(self, outcome: ProbeOutcome, now: float, settings: Settings) -> None:
        """A refused connection is death at once; three misses are, unless bytes come from it; one good probe heals."""
        if outcome is ProbeOutcome.OK:
            self.health, self.misses = "healthy", 0
        elif outcome is ProbeOutcome.REFUSED:
            self.health = "unhealthy"
            self.misses += 1
        elif now - self.delivered_at <= settings.probe_seconds:
            self.misses = 0
        else:
            self.misses += 1
            self.health = "unhealthy" if self.misses >= settings.probe_misses_max else self.health

    def reported(self, load: Load | None, reserved: int, now: float, settings: Settings) -> None:
        """After a good probe. `reserved`: places kept there for paused runs, at least."""
        load = load if self.spec.capped else None
        more = None if self.most is None else self.most + 1
        if load is not None and load.waiting > self._arriving(now, settings):
            self.lifted = False
            self.most = min(max(1, load.running), more) if self.refused and more is not None else max(1, load.running)
        elif more is not None and self.refused and (load is not None or not self.measured):
            self.most = more
        elif more is not None and (load is not None or not self.measured):
            reached = max(self.peak, self.flying + reserved) >= more - 1
            stepwise = settings.cap_release == "stepwise"
            quiet = load is not None and 2 * max(self.flying, load.running) < more  # it may double, for those that are paused there
            self.most = (2 * more if quiet else more) if reached and stepwise else None
            self.lifted = stepwise and not reached  # more places may have been kept than are known here
        if load is not None:
            self.measured, self.load_at = True, now
        self.load = load
        self.seen, self.peak, self.arrivals = self.flying, 0, []
        self.passes_most = max(self.passes_most or 0, self.passes) + 1 if self.pass_refused else None
        self.refused = self.full_when_empty = self.pass_refused = self.rests = False

    def _arriving(self, now: float, settings: Settings) -> int:
        """So many may wait there and be no queue: ours that begin with its next step, where nothing caps it."""
        if self.most is not None or settings.policy != "original" or settings.cap_release != "stepwise":
            return 0
        return sum(now - at <= ARRIVING_SECONDS for at in self.arrivals)

    def arrives(self, now: float) -> None:
        """A turn was placed there."""
        self.arrivals = [*self.arrivals[1 - ARRIVALS_MAX :], now]

    def is_full(self, *, generative: bool) -> None:
        """It gave a turn back, which is not counted any more."""
        if not generative:
            self.passes_most = self.passes if self.passes_most is None else min(self.passes, self.passes_most)
            self.pass_refused = True
            return
        self.most = max(1, self.flying if self.most is None else min(self.most, self.flying))
        self.peak = 0
        self.refused = True
        self.full_when_empty = self.flying == 0

    def configured(self, spec: ReplicaSpec) -> "Pool":
        """As it is from now on. What has changed in any way begins anew: the books then know less, and ask for less."""
        kept = self.models if self.spec.models is None else ()
        anew = Pool(spec, kept if spec.models is None else spec.models, self.flying, self.passes, rests=True)
        elsewhere = (spec.url, spec.kind) != (self.spec.url, self.spec.kind)
        if not elsewhere and spec.capped == self.spec.capped:
            anew.seen, anew.load, anew.load_at = self.seen, self.load, self.load_at
        anew.arrivals = self.arrivals
        if not elsewhere:
            anew.health, anew.misses, anew.delivered_at = self.health, self.misses, self.delivered_at
        return anew

    def gone(self) -> None:
        """It is no longer configured."""
        self.spec, self.models, self.most, self.measured = GONE, (), None, False

    # ---- questions ----------------------------------------------------------------------------------------------

    def serves(self, model: str) -> bool:
        """Whether it is configured for this model, or has said so."""
        return serves_model(self.models, model)

    def cap(self, now: float, settings: Settings) -> float:
        """Most generative turns that may be in flight there; at least 1, except by configuration."""
        most: float = inf if self.most is None else self.most
        if self.most is None and not self.lifted and self.measured and self.unknown(now, settings):
            most = settings.load_unknown_cap
        most = max(1, most)
        limit = self.spec.max_in_flight
        return most if limit is None else max(0, min(most, limit - self.passes))

    def burst(self, now: float, settings: Settings) -> float:
        """By how many turns in flight may outnumber those at its last report."""
        most = settings.burst_turns_max
        if self.load is None or most == 0 or self.unknown(now, settings):
            return inf
        return most or max(BURST_MIN, self.load.running)

    def unknown(self, now: float, settings: Settings) -> bool:
        """Its load can't be read now, or has not been for too long."""
        return self.load is None or now >= self.load_at + settings.load_stale_periods * settings.probe_seconds

    @property
    def idle(self) -> bool:
        """It is healthy and has nothing to do."""
        room = self.spec.max_in_flight is None or self.spec.max_in_flight > 0
        return self.health == "healthy" and room and not (self.flying or self.passes or self.refused or self.rests)
