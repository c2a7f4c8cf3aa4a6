"""Which runs were ended lately, lest another dataplane's memory bring them back?"""

from math import inf

from luftpause.scheduler.core.indexes import Draft, arm, disarm
from luftpause.scheduler.core.model import Run
from luftpause.scheduler.core.timing import Timer

AGE_ERROR_SECONDS = 1.0  # what dataplanes tell by its age comes out later than it was, by what links and a busy start take


def ended_at(d: Draft, key: str) -> float:
    """When the run was last ended; minus infinity if that is not known (any more)."""
    return d.ended_runs.get(key, -inf)


def told_before(run: Run | None, seen: float, ended: float) -> bool:
    """
    A run that was `seen` then is of before the end.

    Where this scheduler has had no turn that began it, both are told by their ages: then one that was seen at about the end was ended with
    it, as clients end a run right after its last answer.
    """
    exact = run is not None and run.born > 0.0
    return seen <= ended or (not exact and seen < ended + AGE_ERROR_SECONDS)


def remember_end(d: Draft, key: str, at: float) -> None:
    """A memory of the run that is not newer than `at` is of its former life. Kept for as long as dataplanes keep idle runs."""
    known = d.ended_runs.get(key)
    if at <= d.now - d.settings.run_idle_seconds or (known is not None and known >= at):
        return
    before = _oldest(d)
    if known is not None:
        _drop(d, known, key)
    elif len(d.ended_runs) >= d.settings.ended_runs_max and before is not None:
        _drop(d, *before)
    d.ended_runs = d.ended_runs.set(key, at)
    d.ended_order = d.ended_order.add((at, key))
    _rearm(d, before)


def sweep(d: Draft) -> None:
    """Forget what is old enough; the timer of the oldest has fired."""
    oldest = d.now - d.settings.run_idle_seconds
    while (first := _oldest(d)) is not None and first[0] <= oldest and d.expiries_left > 0:
        d.expiries_left -= 1
        _drop(d, *first)
    _rearm(d, None)


def _oldest(d: Draft) -> tuple[float, str] | None:
    return d.ended_order.first() if d.ended_order.size else None


def _drop(d: Draft, at: float, key: str) -> None:
    d.ended_runs = d.ended_runs.delete(key)
    d.ended_order = d.ended_order.remove((at, key))


def _rearm(d: Draft, before: tuple[float, str] | None) -> None:
    """One timer, at the oldest."""
    first = _oldest(d)
    if first == before:
        return
    if before is not None:
        disarm(d, before[0] + d.settings.run_idle_seconds, Timer.TOMBSTONE, "")
    if first is not None:
        arm(d, first[0] + d.settings.run_idle_seconds, Timer.TOMBSTONE, "")
