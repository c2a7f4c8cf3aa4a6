"""Which requests decode together, and what have they come to, without touching each of them in each step?

A decode step gives every running request one token. So what they have generated is a difference of two counters, which is worked out only
when somebody asks, and a step costs the same for two requests as for two hundred.
"""

import heapq
from collections.abc import Iterator

from luftpause_fakes.engine_model_work import Work


class Running:
    """`reserve_tokens_max`: what is reserved for an answer at most."""

    def __init__(self, reserve_tokens_max: int) -> None:
        self.computed = 0  # tokens of all of them whose KV exists, this step's included
        self._works: dict[Work, None] = {}
        self._limit = reserve_tokens_max
        self._begun = 0  # decode steps
        self._ended = 0
        self._joined = 0
        self._ends: list[tuple[int, int, Work]] = []  # (the step that is its last, when it joined, who)
        self._reserved = 0  # of those that can't outrun what they reserve, as if they had generated nothing since step 0
        self._steady = 0  # how many those are
        self._overlong: dict[Work, None] = {}

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def __contains__(self, work: Work) -> bool:
        return work in self._works

    def join(self, work: Work) -> None:
        """It decodes from the next step on."""
        self._joined += 1
        work.begun, work.ended, work.joined = self._begun, self._ended, self._joined
        self._works[work] = None
        self.computed += work.computed
        heapq.heappush(self._ends, (self._ended + work.answer_tokens - work.generated, self._joined, work))
        if work.reserve(self._limit) + work.generated >= work.answer_tokens:
            self._reserved += work.reserve(self._limit) + self._ended
            self._steady += 1
        else:
            self._overlong[work] = None

    def leave(self, work: Work) -> None:
        """It decodes no more; its counts are right again."""
        self.settle(work)
        del self._works[work]
        self.computed -= work.computed
        if work in self._overlong:
            del self._overlong[work]
        else:
            self._reserved -= work.reserve(self._limit) + self._ended
            self._steady -= 1

    def settle(self, work: Work) -> None:
        """Bring its counts up to date."""
        work.private += self._begun - work.begun
        work.computed += self._begun - work.begun
        work.generated += self._ended - work.ended
        work.begun, work.ended = self._begun, self._ended

    def settled(self) -> list[Work]:
        for work in self._works:
            self.settle(work)
        return list(self._works)

    def reserve(self) -> int:
        """Tokens that they may still generate, as admission counts them."""
        overlong = 0
        for work in self._overlong:
            self.settle(work)
            overlong += work.reserve(self._limit)
        return self._reserved - self._steady * self._ended + overlong

    def begin(self) -> None:
        """A decode step begins: the last token of each is fed back."""
        self._begun += 1
        self.computed += len(self._works)

    def end(self) -> list[Work]:
        """Each has one token more. Returns those that are complete, in the order in which they joined; they are still here."""
        self._ended += 1
        complete: list[Work] = []
        while self._ends and self._ends[0][0] <= self._ended:
            _, joined, work = heapq.heappop(self._ends)
            if work in self._works and work.joined == joined:
                complete.append(work)
        return complete
