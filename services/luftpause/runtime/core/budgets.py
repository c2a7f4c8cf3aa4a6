"""Has a subtree used more than it may?"""

from msgspec import Struct

from luftpause.runtime.core.events import BudgetUsed, Created
from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import Amounts, Budget, BudgetKind, Costs

NONE: Costs = Costs()


class Passed(Struct, frozen=True):
    """A limit of one run's budget that its subtree has passed."""

    kind: BudgetKind
    used: float
    limit: float

    @property
    def message(self) -> str:
        return f"budget exceeded: {self.kind.value} {_figure(self.used)}/{_figure(self.limit)}"

    def event(self, seconds: float) -> BudgetUsed:
        return BudgetUsed(seconds, exceeded=self.kind, used=self.used)


def limits_of(created: Created) -> Amounts | None:
    """None: the run has no budget of its own."""
    limits = Amounts(created.budget_tokens, created.budget_tool_calls, created.budget_seconds)
    return None if limits == Amounts() else limits


def passed(limits: Amounts | None, costs: Costs, seconds: float) -> Passed | None:
    """The first limit that `costs` of the subtree, or the `seconds` of its budget, are beyond."""
    if limits is None:
        return None
    if limits.tokens is not None and (tokens := costs.prompt_tokens + costs.completion_tokens) > limits.tokens:
        return Passed(BudgetKind.TOKENS, tokens, limits.tokens)
    if limits.tool_calls is not None and costs.tool_calls > limits.tool_calls:
        return Passed(BudgetKind.TOOL_CALLS, costs.tool_calls, limits.tool_calls)
    if limits.seconds is not None and seconds >= limits.seconds:
        return Passed(BudgetKind.SECONDS, seconds, limits.seconds)
    return None


def told(run: Run) -> Passed | None:
    """The limit that its events say was passed."""
    if run.exceeded is None:
        return None
    created = run.created
    limits = {
        BudgetKind.TOKENS: created.budget_tokens,
        BudgetKind.TOOL_CALLS: created.budget_tool_calls,
        BudgetKind.SECONDS: created.budget_seconds,
    }
    return Passed(run.exceeded, run.exceeded_used, limits[run.exceeded] or 0)


def budget(run: Run, costs: Costs, seconds: float) -> Budget | None:
    """As clients see it; `costs` of its subtree."""
    limits = limits_of(run.created)
    if limits is None:
        return None
    used = Amounts(costs.prompt_tokens + costs.completion_tokens, costs.tool_calls, round(seconds, 3))
    return Budget(limits, used, run.exceeded)


def costs_of(run: Run | None) -> Costs:
    """Of the run alone."""
    if run is None:
        return NONE
    return Costs(
        turns=run.turns,
        tool_calls=run.tool_calls,
        failed_tool_calls=run.failed_tool_calls,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cached_tokens=run.cached_tokens,
        turn_seconds=run.turn_seconds,
        tool_seconds=run.tool_seconds,
    )


def plus(costs: Costs, after: Costs, before: Costs = NONE) -> Costs:
    """`costs` when a part of them has grown from `before` to `after`."""
    return Costs(
        turns=costs.turns + after.turns - before.turns,
        tool_calls=costs.tool_calls + after.tool_calls - before.tool_calls,
        failed_tool_calls=costs.failed_tool_calls + after.failed_tool_calls - before.failed_tool_calls,
        prompt_tokens=costs.prompt_tokens + after.prompt_tokens - before.prompt_tokens,
        completion_tokens=costs.completion_tokens + after.completion_tokens - before.completion_tokens,
        cached_tokens=costs.cached_tokens + after.cached_tokens - before.cached_tokens,
        turn_seconds=costs.turn_seconds + after.turn_seconds - before.turn_seconds,
        tool_seconds=costs.tool_seconds + after.tool_seconds - before.tool_seconds,
    )


def _figure(amount: float) -> str:
    return f"{amount:d}" if isinstance(amount, int) else f"{round(amount, 2):.12g}"
