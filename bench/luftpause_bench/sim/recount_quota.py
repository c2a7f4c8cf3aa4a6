"""Do the counts of who asks for quota agree with the turns themselves?"""

from collections import Counter

from luftpause.scheduler.core.indexes import Draft, thaw
from luftpause.scheduler.core.model import QueueKey, Replica, State, Turn
from luftpause.scheduler.core.quota_cost import priority_of
from luftpause.scheduler.core.quota_wait import UNASKED, takes


def recount_quota(state: State, waiting: list[Turn]) -> None:
    """Raises AssertionError. `waiting`: its held turns."""
    d = thaw(state)
    assert state.hosted == tuple(name for name in state.names if state.replicas[name].spec.quota)
    asking: Counter[tuple[str, int]] = Counter()
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for turn in waiting:
        if turn.quota is None:
            continue
        assert not set(turn.quota.asks) & set(turn.quota.lines), turn
        assert not turn.quota.fence, turn
        for name in turn.quota.asks:
            asking[name, priority_of(d, turn)] += 1
        for name in turn.quota.lines:
            lines.setdefault(name, []).append((priority_of(d, turn), turn.arrived, turn.id))
    assert dict(state.asking.items()) == {name: tuple(asking[name, priority] for priority in range(3)) for name, _ in asking}
    assert {name: list(line) for name, line in state.lines.items()} == {name: sorted(items) for name, items in lines.items()}
    others = {turn.id for turn in state.turns.values()} - {turn.id for turn in waiting}
    assert not any((quota := state.turns[id_].quota) and (quota.asks or quota.lines) for id_ in others)
    assert set(state.run_quotas) <= set(state.runs)


def asks_where_it_may(d: Draft, turn: Turn, key: QueueKey, replica: Replica) -> None:
    """A held turn that may go to a replica with a quota asks there, or elsewhere at first, or has reason not to."""
    quota, name = turn.quota or UNASKED, replica.name
    if name in quota.asks or name in quota.given_up or (quota.asks and not quota.deferred):
        return
    assert name in quota.lines, (turn, replica)
    assert not takes(d, turn, key, replica, priority_of(d, turn)), (turn, replica)
