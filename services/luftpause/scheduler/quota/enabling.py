"""What does the word of an operator lift, that a target may be used again?"""

from math import inf

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, cascade, ledger
from luftpause.scheduler.quota.draft import Draft
from luftpause.scheduler.quota.model import Mode, Origin
from luftpause.scheduler.quota.wishes import fit_waiters


def enabled(d: Draft) -> None:
    """
    All that keeps calls back and was told or learned: a block or a lack of credit, strikes, limits, rates, one call at a time.

    It begins again with one call, then slowly, so that a mistake costs one refusal. What is configured stays, and so does what was counted
    here of limits that nobody tells.
    """
    breaker.begin_episode(d, Mode.OPEN, d.now)
    d.breaker = replace(
        d.breaker, told_until=-inf, strikes=0, limited_at=-inf, rate=inf, in_flight_max=inf, in_flight_stated=inf, tokens=0.0
    )  # fmt: skip
    learned = [name for name, scope in d.scopes.items() if scope.origin is not Origin.CONFIGURED]
    for name in learned:
        del d.scopes[name]
    for name, scope in d.scopes.items():
        d.scopes[name] = ledger.forgotten(scope, d.now)
    cascade.end(d)
    d.budgets, d.budgets_old, d.refused, d.declined = Map(), Map(), Map(), {}
    d.floor_at = min(d.floor_at, d.now)
    if learned:
        fit_waiters(d)
