"""What would have changed: per run, and in all by class?"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from msgspec import Struct

from luftpause.cli.load_report import Spread, spread
from luftpause.cli.replay_world import Fared
from luftpause.scheduler.core.events import TurnClass

CLASSES = tuple(TurnClass)


class RunFared(Struct, frozen=True):
    """`wait_s`: held in all. `first_token_s`: mean from arrival. `run_s` None: a turn of it got no answer."""

    run: str
    turn_class: str
    turns: int
    wait_s: float
    first_token_s: float | None
    run_s: float | None
    moves: int


class Totals(Struct, frozen=True):
    """One class. None: there was nothing to measure."""

    turns: int
    answered: int
    refused: int
    runs: int
    wait_mean_s: float
    wait_s: Spread | None
    first_token_s: Spread | None
    run_median_s: float | None
    moves: int
    cached_share: float | None


class Outcome(Struct, frozen=True):
    """One way in which the turns fared."""

    runs: dict[str, RunFared]
    classes: dict[str, Totals]


def outcome(fared: Sequence[Fared]) -> Outcome:
    by_run: dict[str, list[Fared]] = defaultdict(list)
    for each in fared:
        by_run[f"{each.turn.run} {each.turn.principal}".rstrip()].append(each)
    runs = {name: _run(name, mine) for name, mine in by_run.items()}
    classes = {each.name.lower(): [one for one in fared if one.turn.turn_class is each] for each in CLASSES}
    return Outcome(
        runs, {name: _totals(mine, [run for run in runs.values() if run.turn_class == name]) for name, mine in classes.items() if mine}
    )


def _run(name: str, fared: Sequence[Fared]) -> RunFared:
    ends = [each.finished for each in fared]
    last = max((end for end in ends if end is not None), default=0.0)
    first_tokens = _first_tokens(fared)
    return RunFared(
        run=name,
        turn_class=fared[0].turn.turn_class.name.lower(),
        turns=len(fared),
        wait_s=sum(_waits(fared)),
        first_token_s=fmean(first_tokens) if first_tokens else None,
        run_s=None if None in ends else last - min(each.arrived for each in fared),
        moves=_moves(fared),
    )


def _totals(fared: Sequence[Fared], runs: Sequence[RunFared]) -> Totals:
    waits = _waits(fared)
    prompt = sum(each.turn.prompt_tokens for each in fared if each.cached_tokens is not None)
    took = [run.run_s for run in runs if run.run_s is not None]
    return Totals(
        turns=len(fared),
        answered=sum(each.finished is not None for each in fared),
        refused=sum(each.refused for each in fared),
        runs=len(runs),
        wait_mean_s=fmean(waits) if waits else 0.0,
        wait_s=spread(waits),
        first_token_s=spread(_first_tokens(fared)),
        run_median_s=median(took) if took else None,
        moves=sum(run.moves for run in runs),
        cached_share=sum(each.cached_tokens or 0 for each in fared) / prompt if prompt else None,
    )


def _waits(fared: Sequence[Fared]) -> list[float]:
    return [each.placed - each.arrived for each in fared if each.placed is not None]


def _first_tokens(fared: Sequence[Fared]) -> list[float]:
    return [each.first - each.arrived for each in fared if each.first is not None]


def _moves(fared: Sequence[Fared]) -> int:
    """How often a lane's next turn went to another replica."""
    homes: dict[str, str] = {}
    moves = 0
    for each in sorted((one for one in fared if one.placed is not None), key=lambda one: one.placed or 0.0):
        moves += homes.get(each.turn.model, each.replica) != each.replica
        homes[each.turn.model] = each.replica
    return moves


# ---- text -------------------------------------------------------------------------------------------------------

HEADS = (
    "turns", "answered", "refused", "runs", "wait mean", "wait p95", "first token p50", "p95", "run median", "moves", "from cache",
)  # fmt: skip
Rows = dict[str, Outcome]  # by what they are called, in the order of the table


def totals_text(outcomes: Rows) -> str:
    """One table per class, a line for each way."""
    lines: list[str] = []
    for name in sorted({name for each in outcomes.values() for name in each.classes}, reverse=True):
        rows = [(called, *_cells(each.classes[name])) for called, each in outcomes.items() if name in each.classes]
        lines += ["", *_table((name, *HEADS), rows)]
    return "\n".join(lines)


def runs_text(before: Outcome, after: Outcome, shown: int) -> str:
    """The runs that change most, by wait and first token."""
    both = [(before.runs[name], after.runs[name]) for name in after.runs if name in before.runs]
    both.sort(key=lambda pair: (-_change(*pair), pair[0].run))
    changed = [pair for pair in both if _change(*pair) > 0 or pair[0].moves != pair[1].moves]
    counted = Counter("sooner" if new.wait_s < old.wait_s else "later" if new.wait_s > old.wait_s else "alike" for old, new in both)
    rows = [
        (
            _short(old.run), old.turn_class, str(old.turns), _arrow(old.wait_s, new.wait_s), _arrow(old.first_token_s, new.first_token_s),
            _arrow(old.run_s, new.run_s), f"{old.moves} -> {new.moves}",
        )
        for old, new in changed[:shown]
    ]  # fmt: skip
    said = f"{counted['sooner']} runs wait less, {counted['later']} more, {counted['alike']} as long."
    if not rows:
        return said
    cut = f" The {len(rows)} of {len(changed)} that change most:" if len(changed) > len(rows) else ""
    return "\n".join([said + cut, *_table(("run", "class", "turns", "wait", "first token", "whole run", "moves"), rows)])


def _change(old: RunFared, new: RunFared) -> float:
    return abs(new.wait_s - old.wait_s) + abs((new.first_token_s or 0.0) - (old.first_token_s or 0.0))


def _cells(totals: Totals) -> tuple[str, ...]:
    wait, first = totals.wait_s, totals.first_token_s
    return (
        str(totals.turns), str(totals.answered), str(totals.refused), str(totals.runs), _seconds(totals.wait_mean_s),
        _seconds(wait.p95 if wait else None), _seconds(first.p50 if first else None), _seconds(first.p95 if first else None),
        _seconds(totals.run_median_s), str(totals.moves), "-" if totals.cached_share is None else f"{totals.cached_share:.0%}",
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _arrow(old: float | None, new: float | None) -> str:
    return f"{_seconds(old)} -> {_seconds(new)}"


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:27]}..."


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """First column left, the others right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    return [
        "  ".join([row[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]])
        for row in (heads, *rows)
    ]
