"""For how long will a tool keep its run, and how long is that worth waiting for?

A prefix that is kept until its run comes back, at most `until` seconds, costs a place for the mean of min(pause, until), and pays in the
part of the cases where the run comes in time. So what a pause costs is that mean over that part, at the `until` where it is least: where
nine calls take half a second and one takes a minute it is half a second, though the mean is six.
"""

from itertools import accumulate

from msgspec.structs import replace

from luftpause.scheduler.core.guard_model import Guarded, Pauses

PAUSES_KEPT = 64  # of one tool
JUDGED_EACH = 8  # pauses: sorting them takes as long as the rest of a turn's end
PART = 0.25  # that a new judgement counts: 64 pauses are few
IN_TIME_LEAST = 0.5  # part of the pauses: a luckier one is chance
TOOLS_MAX = 512  # beyond them what is new is not told apart
OTHER_TOOLS = "\x1fothers"
PAUSE_SECONDS = 2.0
KNOWN = 3  # so many are needed before they are believed


def with_pause(g: Guarded, tool: str, turn_class: int, seconds: float) -> Guarded:
    if tool not in g.pauses and len(g.pauses) >= TOOLS_MAX:
        tool = OTHER_TOOLS
    pauses = _and(g.pauses.get(tool, Pauses()), seconds)
    return replace(g, pauses=g.pauses.set(tool, pauses), batch_pauses=_and(g.batch_pauses, seconds) if turn_class else g.batch_pauses)


def _and(pauses: Pauses, seconds: float) -> Pauses:
    count, last = pauses.count + 1, (*pauses.last[1 - PAUSES_KEPT :], seconds)
    if count > JUDGED_EACH and count % JUDGED_EACH:
        return Pauses(count, last, pauses.cost, pauses.until)
    cost, until = cheapest(last)
    return Pauses(count, last, cost if count <= JUDGED_EACH else pauses.cost + PART * (cost - pauses.cost), until)


def cheapest(pauses: tuple[float, ...]) -> tuple[float, float]:
    """Seconds of keeping a place per run that comes in time, and until when it is kept then. `pauses`: one at least."""
    ordered, count = sorted(pauses), len(pauses)
    best, until = float("inf"), 0.0
    for number, (seconds, total) in enumerate(zip(ordered, accumulate(ordered), strict=True), 1):
        if number >= IN_TIME_LEAST * count:
            cost = (total + (count - number) * seconds) / number
            if cost < best:
                best, until = cost, seconds
    return best, until


def cost_seconds(pauses: Pauses | None, unknown: float = PAUSE_SECONDS) -> float:
    """Of keeping the place of a run that begins such a pause."""
    return pauses.cost if pauses is not None and pauses.count >= KNOWN else unknown


def residual_seconds(g: Guarded, tool: str, elapsed: float) -> float:
    """
    How much longer a call that has taken so long is to be waited for: as long as those that took longer did, or until when most are back,
    whatever costs less per run that comes in time. One that is older than all: as long again.
    """
    pauses = g.pauses.get(tool)
    last = pauses.last if pauses is not None else ()
    longer = [seconds for seconds in last if seconds > elapsed]
    if not longer:
        return max(0.0, PAUSE_SECONDS - elapsed) + 0.5 * elapsed if len(last) < KNOWN else elapsed
    rest, count = sum(longer) / len(longer) - elapsed, len(longer)
    until = pauses.until if pauses is not None else 0.0
    if elapsed < until and (in_time := [seconds for seconds in longer if seconds <= until]):
        rest = min(rest, (sum(in_time) + (count - len(in_time)) * until - count * elapsed) / len(in_time))
    return rest * (1 + 1 / count)
