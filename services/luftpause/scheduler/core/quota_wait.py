"""At whose quota does a held turn ask, and when does it stop?

A replica with a quota takes no turn by the held order. Its turns ask, and the governor's queue is their only order; a turn comes to it by
a grant. Whoever asks keeps no place there: at most as many of its priority and better ones ask as the replica would take, the others stand
in its line.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from luftpause.scheduler.core.admission import limit
from luftpause.scheduler.core.decisions import CancelReserve, Outcome, ReserveQuota, SettleQuota
from luftpause.scheduler.core.events import Usage
from luftpause.scheduler.core.indexes import Draft, put_turn
from luftpause.scheduler.core.model import GENERATIVE, UNLIMITED, QueueKey, Replica, Turn
from luftpause.scheduler.core.quota_cost import cost_of, learn, priority_of
from luftpause.scheduler.core.quota_model import TurnQuota
from luftpause.scheduler.core.runs import lane_of
from luftpause.scheduler.core.sorted_set import SortedSet

NONE_ASK = (0, 0, 0)
NOBODY: SortedSet[tuple[int, float, str]] = SortedSet()
UNASKED = TurnQuota()


def ask(d: Draft, turn: Turn, key: QueueKey, able: Sequence[Replica]) -> Turn:
    """
    Ask at a replica of `able` that has a quota: the best; once that has deferred it, at all. Returns the turn, not stored.

    It asks at those that have room; where none has, it stands in the lines of all.
    """
    quota = turn.quota or UNASKED
    if quota.asks and not quota.deferred:
        return turn
    fresh = [
        replica
        for replica in able
        if replica.spec.quota and replica.name not in quota.asks + quota.lines and replica.name not in quota.given_up
    ]
    priority = priority_of(d, turn)
    open_ = [replica for replica in fresh if takes(d, turn, key, replica, priority)]
    full = [replica.name for replica in fresh if replica not in open_]
    if open_ and not quota.deferred:
        open_, full = [_best(d, turn, open_)], []
    if not (open_ or full):
        return turn
    asks = [replica.name for replica in open_]
    quota = replace(
        quota, asks=tuple(sorted((*quota.asks, *asks))), lines=tuple(sorted((*quota.lines, *full))), since=quota.since or d.now,
    )  # fmt: skip
    turn = replace(turn, quota=quota)
    for name in asks:
        _reserve(d, turn, name, priority)
    for name in full:
        d.lines = d.lines.set(name, d.lines.get(name, NOBODY).add((priority, turn.arrived, turn.id)))
    return turn


def stop(d: Draft, turn: Turn, *, at: Sequence[str] | None = None, answered: str = "") -> Turn:
    """It asks no more (`at`: at these). `answered`: that one has said yes or no. Returns the turn, not stored."""
    quota = turn.quota
    if quota is None or not (quota.asks or quota.lines):
        return turn
    priority = priority_of(d, turn)
    ended = quota.asks + quota.lines if at is None else at
    for name in quota.asks:
        if name in ended:
            _count(d, name, priority, -1)
            if name != answered:
                d.decisions.append(CancelReserve(turn.id, turn.attempt, name))
    for name in quota.lines:
        if name in ended:
            _leave_line(d, name, (priority, turn.arrived, turn.id))
    asks, lines = (tuple([name for name in names if name not in ended]) for names in (quota.asks, quota.lines))
    return replace(turn, quota=replace(quota, asks=asks, lines=lines))


def review(d: Draft, turn: Turn, able: Sequence[Replica]) -> Turn:
    """Where a held turn may go has changed: it asks where it may. Returns the turn, stored; the very same where nothing is to be done."""
    before, quota, key = turn, turn.quota, turn.queue
    if key is None:
        return turn
    names = [replica.name for replica in able if replica.spec.quota]
    if quota is not None and (lost := [name for name in quota.asks + quota.lines if name not in names]):
        turn = stop(d, turn, at=lost)
    if names:
        turn = ask(d, turn, key, able)
    if turn is not before:
        put_turn(d, turn)
    return turn


def wake(d: Draft) -> None:
    """Of the replicas that may have room now, those with a quota: their lines go on. The others stay in `dirty`."""
    names = [name for name in d.dirty if name in d.hosted]
    if not names:
        return
    d.dirty = tuple([name for name in d.dirty if name not in names])
    for name in names:
        if name in d.lines:
            _go_on(d, name)


def _go_on(d: Draft, name: str) -> None:
    while (line := d.lines.get(name)) is not None:
        first = line.first()
        turn = d.turns[first[2]]
        if turn.queue is None or turn.quota is None or not takes(d, turn, turn.queue, d.replicas[name], first[0]):
            return
        _leave_line(d, name, first)
        quota = turn.quota
        lines = tuple([other for other in quota.lines if other != name])
        turn = replace(turn, quota=replace(quota, asks=tuple(sorted((*quota.asks, name))), lines=lines))
        put_turn(d, turn)
        _reserve(d, turn, name, first[0])


def quota_changed(d: Draft, name: str) -> None:
    """The replica has another quota, or none: nobody asks for the former one any more. Looks at all turns."""
    for id_ in sorted(id_ for id_, turn in d.turns.items() if turn.quota is not None and name in turn.quota.asks):
        put_turn(d, stop(d, d.turns[id_], at=(name,)))


def takes(d: Draft, turn: Turn, key: QueueKey, replica: Replica, priority: int) -> bool:
    """It has room for this turn beside those in flight and those of no less priority that ask."""
    if not has_room(d, turn, key, replica):
        return False
    most = limit(replica, d.settings) if turn.kind == GENERATIVE else UNLIMITED
    return most >= UNLIMITED or replica.in_flight + sum(d.asking.get(replica.name, NONE_ASK)[: priority + 1]) < most


def has_room(d: Draft, turn: Turn, key: QueueKey, replica: Replica) -> bool:
    return d.policy.opens(d, replica, key) is None and d.policy.admits(d, replica, turn) is None


def settle_lease(d: Draft, turn: Turn, quota: TurnQuota, outcome: Outcome, usage: Usage | None) -> None:
    """The turn's place has ended: so does its lease."""
    prompt, completion = (None, None) if usage is None else (usage.prompt, usage.completion)
    d.decisions.append(SettleQuota(turn.id, turn.attempt, turn.replica, quota.fence, outcome, prompt, completion))
    if usage is not None:
        learn(d, turn, usage)


def _best(d: Draft, turn: Turn, replicas: list[Replica]) -> Replica:
    if len(replicas) == 1:
        return replicas[0]
    run = d.runs.get(turn.run) if d.settings.stickiness == "strict" and turn.kind == GENERATIVE else None
    lane = lane_of(run, turn.model) if run else None
    return d.policy.choose(d, turn, lane.home if lane else "", replicas)


def _reserve(d: Draft, turn: Turn, name: str, priority: int) -> None:
    prompt, answer = cost_of(d, turn)
    _count(d, name, priority, 1)
    tries = turn.quota.tries if turn.quota is not None else 0
    d.decisions.append(ReserveQuota(turn.id, turn.attempt, name, turn.caller, priority, prompt, answer, retry=tries > 0))


def _count(d: Draft, name: str, priority: int, by: int) -> None:
    counts = list(d.asking.get(name, NONE_ASK))
    counts[priority] += by
    d.asking = d.asking.set(name, tuple(counts)) if any(counts) else d.asking.delete(name)
    if by < 0 and name not in d.dirty and name in d.lines:
        d.dirty = (*d.dirty, name)


def _leave_line(d: Draft, name: str, item: tuple[int, float, str]) -> None:
    line = d.lines[name].remove(item)
    d.lines = d.lines.set(name, line) if line.size else d.lines.delete(name)
