"""What is counted of turns on their way, so that Prometheus may ask for it?

The ledger calls a `Tally` at each step of a turn. What a turn's class, model and replica have together is looked up once, when it is
placed: the whole costs about 2 us per turn. Times are seconds on the ledger's clock.
"""

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from luftpause.dataplane.turns import Ask, TurnClass, Usage
from luftpause.dataplane.waiting import Turn
from luftpause.kit.metrics import OTHER, Buckets, Counter, Labels, counter_family, histogram_family

P: Final = "luftpause_dataplane_"
CLASS_NAMES: Final = {each: each.value for each in TurnClass}
NOT_HELD: Final = "none"
MODELS_MAX: Final = 100  # named ones; further names are counted together
NAME_CHARS_MAX: Final = 128

HELD_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
FIRST_TOKEN_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TURN_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

Key = tuple[str, TurnClass, str, str]  # API, class, model, replica


class Row:
    """What the turns of one API, class and model at one replica have together."""

    __slots__ = ("cached", "completion", "engine_first", "first", "outcomes", "prompt", "turn")

    def __init__(self) -> None:
        self.first = Buckets(len(FIRST_TOKEN_SECONDS) + 1)
        self.engine_first = Buckets(len(FIRST_TOKEN_SECONDS) + 1)
        self.turn = Buckets(len(TURN_SECONDS) + 1)
        self.prompt = self.completion = self.cached = 0
        self.outcomes: dict[str, int] = {}


class Tally:
    """Since the start. `facts` and `orders` count by type what was told to and by the scheduler."""

    def __init__(self) -> None:
        self.facts: Counts[str] = Counts()
        self.orders: Counts[str] = Counts()
        self.returns = Counter(P + "returns", "Turns that a replica did not take and that were held again.", ("replica", "reason"))
        self._placeless: Counts[tuple[str, TurnClass, str]] = Counts()  # that ended without a place, by outcome
        self._body_bytes = dict.fromkeys(TurnClass, 0)
        self._held: dict[tuple[TurnClass, str], Buckets] = {}
        self._rows: dict[Key, Row] = {}
        self._models: set[str] = set()

    # ---- what happened

    def asked(self, ask: Ask) -> None:
        self._body_bytes[ask.turn_class] += ask.body_bytes

    def placed(self, turn: Turn, now: float, why: str) -> None:
        ask = turn.ask
        held = self._held.get((ask.turn_class, why)) or self._held.setdefault((ask.turn_class, why), Buckets(len(HELD_SECONDS) + 1))
        seconds = now - turn.arrived
        held.counts[bisect_left(HELD_SECONDS, seconds)] += 1
        held.total += seconds
        turn.placed_at = now
        key = (ask.api, ask.turn_class, ask.model, turn.replica)
        turn.row = self._rows.get(key) or self._new(key)

    def first_token(self, turn: Turn, now: float) -> None:
        row = turn.row
        if row is not None:
            _observe(row.first, FIRST_TOKEN_SECONDS, now - turn.arrived)
            _observe(row.engine_first, FIRST_TOKEN_SECONDS, now - turn.placed_at)

    def finished(self, turn: Turn, now: float, usage: Usage | None, outcome: str) -> None:
        row = turn.row
        if row is not None:
            _observe(row.turn, TURN_SECONDS, now - turn.arrived)
        self.over(turn, outcome, usage)

    def over(self, turn: Turn, outcome: str, usage: Usage | None = None) -> None:
        row = turn.row
        if row is not None and usage is not None:
            row.prompt += usage.prompt
            row.completion += usage.completion
            row.cached += usage.cached or 0
        if row is not None and turn.replica:
            row.outcomes[outcome] = row.outcomes.get(outcome, 0) + 1
        else:
            self._placeless[turn.ask.api, turn.ask.turn_class, outcome] += 1

    def _new(self, key: Key) -> Row:
        """Names of models come from clients where a replica serves any, so only so many are kept."""
        api, turn_class, model, replica = key
        if model not in self._models:
            if len(self._models) < MODELS_MAX and len(model) <= NAME_CHARS_MAX:
                self._models.add(model)
            else:
                key = (api, turn_class, OTHER, replica)
        return self._rows.setdefault(key, Row())

    # ---- what is shown

    def families(self) -> Iterator[Metric]:
        yield counter_family(P + "turns", "Turns that are over.", ("api", "class", "replica", "outcome"), self._turns().items())
        yield self.returns.family()
        sent = [((CLASS_NAMES[each],), count) for each, count in self._body_bytes.items()]
        yield counter_family(P + "turn_body_bytes", "Bytes of the bodies of turns, as clients sent them.", ("class",), sent)
        help_text = "From a turn's arrival to its place, by the last reason why it was held; none: it was not."
        held = [((CLASS_NAMES[turn_class], why or NOT_HELD), buckets) for (turn_class, why), buckets in self._held.items()]
        yield histogram_family(P + "held_seconds", help_text, ("class", "reason"), HELD_SECONDS, held)
        by_model = ("class", "model")
        yield self._histogram(
            "first_token_seconds", "From a turn's arrival to the first token of its stream, held or not.", FIRST_TOKEN_SECONDS, by_model,
            lambda turn_class, model, _: (turn_class, model), lambda row: row.first,
        )  # fmt: skip
        yield self._histogram(
            "engine_first_token_seconds", "From a turn's place to the first token of its stream.", FIRST_TOKEN_SECONDS, ("replica",),
            lambda _class, _model, replica: (replica,), lambda row: row.engine_first,
        )  # fmt: skip
        yield self._histogram(
            "turn_seconds", "From a turn's arrival to the end of its answer, of turns that were answered.", TURN_SECONDS, by_model,
            lambda turn_class, model, _: (turn_class, model), lambda row: row.turn,
        )  # fmt: skip
        yield counter_family(
            P + "tokens", "Tokens of turns, also failed ones, where engines say; prompt holds cached.", ("model", "replica", "type"),
            self._tokens().items(),
        )  # fmt: skip
        for name, help_text, counts in (
            ("facts", "What was told to the scheduler, by type.", self.facts),
            ("orders", "What the scheduler told, by type.", self.orders),
        ):
            yield counter_family(P + name, help_text, ("type",), [((kind,), count) for kind, count in counts.items()])

    def _histogram(
        self, name: str, help_text: str, bounds: tuple[float, ...], labels: Labels,
        label: Callable[[str, str, str], Labels], pick: Callable[[Row], Buckets],
    ) -> Metric:  # fmt: skip
        sums: dict[Labels, Buckets] = {}
        for (_, turn_class, model, replica), row in self._rows.items():
            values = label(CLASS_NAMES[turn_class], model, replica)
            sums.setdefault(values, Buckets(len(bounds) + 1)).add(pick(row))
        return histogram_family(P + name, help_text, labels, bounds, sums.items())

    def _turns(self) -> Counts[Labels]:
        found: Counts[Labels] = Counts()
        for (api, turn_class, outcome), count in self._placeless.items():
            found[api, CLASS_NAMES[turn_class], "", outcome] = count
        for (api, turn_class, _, replica), row in self._rows.items():
            for outcome, count in row.outcomes.items():
                found[api, CLASS_NAMES[turn_class], replica, outcome] += count
        return found

    def _tokens(self) -> Counts[Labels]:
        found: Counts[Labels] = Counts()
        for (_, _, model, replica), row in self._rows.items():
            for kind, count in (("prompt", row.prompt), ("completion", row.completion), ("cached", row.cached)):
                found[model, replica, kind] += count
        return found


def _observe(buckets: Buckets, bounds: tuple[float, ...], value: float) -> None:
    buckets.counts[bisect_left(bounds, value)] += 1
    buckets.total += value
