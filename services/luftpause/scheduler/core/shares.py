"""Whose turns are held and in flight?

Counted as it changes, by whoever sees each event: the state itself counts no finer than it decides.
"""

from collections.abc import Collection, Iterator

from luftpause.scheduler.core.model import GENERATIVE, State, Turn, TurnPhase

IN_FLIGHT = TurnPhase.IN_FLIGHT
NOTHING = [0, 0, 0, 0]


class Shares:
    """Turns by class and replica, by class and reason, by caller and class."""

    def __init__(self) -> None:
        self.in_flight: tuple[dict[str, int], ...] = ({}, {})  # by class: replica -> generative turns; may be 0
        self.held: tuple[dict[str, int], ...] = ({}, {})  # by class: reason -> turns; may be 0
        self.callers: dict[str, list[int]] = {}  # flow -> held and in flight of class 0, of class 1
        self.health_since: dict[str, float] = {}  # replica -> when its health last changed
        self._by_in_flight: dict[int, dict[str, None]] = {}  # number of turns in flight -> flows

    def count(self, turn: Turn, by: int) -> None:
        """The turn begins (1) or ceases (-1) to be held, or to be in flight."""
        flow, turn_class = turn.flow, 1 if turn.turn_class else 0  # a plain int: half the price of the enum's
        counts = self.callers.get(flow)
        if counts is None:
            counts = self.callers[flow] = [0, 0, 0, 0]
        if turn.phase is IN_FLIGHT:
            if turn.kind == GENERATIVE:
                replica, replicas = turn.replica, self.in_flight[turn_class]
                replicas[replica] = replicas.get(replica, 0) + by
            before = counts[1] + counts[3]
            counts[2 * turn_class + 1] += by
            self._move(flow, before, before + by)
        else:
            reason, reasons = turn.reason._value_ if turn.reason is not None else "", self.held[turn_class]
            reasons[reason] = reasons.get(reason, 0) + by
            counts[2 * turn_class] += by
        if by < 0 and counts == NOTHING:
            del self.callers[flow]

    def busiest(self) -> Iterator[str]:
        """Flows with turns in flight, most first."""
        for number in sorted(self._by_in_flight, reverse=True):
            yield from self._by_in_flight[number]

    def forget_replicas(self, names: Collection[str]) -> None:
        """Only these are configured: of others, what is 0 need not be known any more."""
        for replicas in self.in_flight:
            for name in [name for name, number in replicas.items() if not number and name not in names]:
                del replicas[name]
        for name in [name for name in self.health_since if name not in names]:
            del self.health_since[name]

    def _move(self, flow: str, before: int, after: int) -> None:
        table = self._by_in_flight
        if before:
            flows = table[before]
            del flows[flow]
            if not flows:
                del table[before]
        if after:
            flows = table.get(after)
            if flows is None:
                table[after] = {flow: None}
            else:
                flows[flow] = None


def shares_of(state: State) -> Shares:
    """Counted from scratch: costs a microsecond per turn."""
    shares = Shares()
    for turn in state.turns.values():
        shares.count(turn, 1)
    return shares
