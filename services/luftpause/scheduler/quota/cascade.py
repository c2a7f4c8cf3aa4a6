"""Are several callers limited at once, and who waits for whose work?"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf

from msgspec.structs import replace

from luftpause.scheduler.quota.decisions import CascadeBegan, CascadeOver
from luftpause.scheduler.quota.draft import Draft, is_sequential, rank_all
from luftpause.scheduler.quota.model import Cascade, Mode

Workflow = Mapping[str, Sequence[str]] | Sequence[str]  # caller -> who works on with what it made; a list is a chain
HITS_MAX = 64


def edges(workflows: Mapping[str, Workflow]) -> dict[str, tuple[str, ...]]:
    """Caller -> callers right behind it, of all workflows."""
    found: dict[str, list[str]] = {}
    for workflow in workflows.values():
        graph = workflow if isinstance(workflow, Mapping) else {up: [down] for up, down in pairwise(workflow)}
        for caller, followers in graph.items():
            behind = found.setdefault(caller, [])
            behind.extend(follower for follower in followers if follower not in behind)
    return {caller: tuple(behind) for caller, behind in found.items()}


def depths(graph: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many callers at most stand before each. ValueError: the workflows go in a circle; it names who is on it."""
    before = {name: 0 for behind in graph.values() for name in behind} | dict.fromkeys(graph, 0)
    for behind in graph.values():
        for name in behind:
            before[name] += 1
    found = dict.fromkeys(before, 0)
    ready = [name for name, count in before.items() if not count]
    for name in ready:  # grows while it is walked
        for follower in graph.get(name, ()):
            found[follower] = max(found[follower], found[name] + 1)
            before[follower] -= 1
            if not before[follower]:
                ready.append(follower)
    if len(ready) < len(before):
        raise ValueError(
            f"the workflows go in a circle through {', '.join(sorted(set(before) - set(ready)))}: take one of their arrows out"
        )
    return found


def vote(d: Draft, caller: str) -> None:
    """This caller met a limit that nobody had seen yet. Empty: nobody knows which."""
    s = d.settings
    if not caller:
        return
    hits = (*(hit for hit in d.cascade.hits if d.now - hit[0] < s.cascade_seconds and hit[1] != caller), (d.now, caller))[-HITS_MAX:]
    d.cascade = replace(d.cascade, hits=hits)
    if len(hits) < s.cascade_callers or is_sequential(d):
        return
    d.cascade = replace(d.cascade, until=d.now + s.cascade_seconds_max)
    callers = tuple(sorted(name for _, name in hits))
    d.decisions.append(CascadeBegan(d.spec.name, callers, behind(d.downstream, callers), d.cascade.until))
    rank_all(d)


def behind(downstream: Mapping[str, tuple[str, ...]], callers: Sequence[str]) -> tuple[str, ...]:
    """Everybody downstream of these, near ones first."""
    found, look = dict.fromkeys(callers, None), list(callers)
    for name in look:
        for follower in downstream.get(name, ()):
            if follower not in found:
                found[follower] = None
                look.append(follower)
    return tuple(look[len(callers) :])


def elapse(d: Draft) -> None:
    """One at a time until it has been quiet for a while, or for the longest time."""
    if d.cascade.until == -inf:
        return
    calm = d.breaker.mode in {Mode.CLOSED, Mode.PRE_EMPTIVE_OPEN} and d.now - d.breaker.limited_at >= d.settings.cascade_quiet_seconds
    if calm or d.now >= d.cascade.until:
        end(d)


def end(d: Draft) -> None:
    """From now on as many at a time as may; who was limited is forgotten."""
    was, d.cascade = d.cascade, Cascade()
    if was.until > -inf:
        d.decisions.append(CascadeOver(d.spec.name))
        rank_all(d)


def due(d: Draft) -> float:
    """When it may end."""
    if not is_sequential(d):
        return inf
    quiet_at = d.breaker.limited_at + d.settings.cascade_quiet_seconds
    return min(d.cascade.until, quiet_at if quiet_at > d.now else inf)
