"""By whose rules is it decided who may go?

One row per policy: the first that may go, what a grant books beside its lease, when something changes by itself, what a refusal means.
"""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from luftpause.scheduler.quota import admission, article, breaker
from luftpause.scheduler.quota.admission import Choice
from luftpause.scheduler.quota.draft import Draft
from luftpause.scheduler.quota.events import AnswerReported
from luftpause.scheduler.quota.model import Lease, Waiter


class Spend(Protocol):
    def __call__(self, d: Draft, waiter: Waiter, rank: int, *, promoted: bool) -> None: ...


class Rules(Struct, frozen=True):
    choose: Callable[[Draft], Choice | None]
    spend: Spend
    due: Callable[[Draft], float]
    limited: Callable[[Draft, Lease, AnswerReported], None]


RULES: Final = {
    "governor": Rules(admission.choose, admission.spend, admission.promotion_due, breaker.limited),
    "article": Rules(article.choose, article.spend, article.due, article.limited),
}
