"""Which run's model made a tool call, so that what a client does for that call can be its child?"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

CALLS_MAX: Final = 50_000
ID_CHARS_MIN: Final = 16
# As the scheduler recognises runs: an id that is short, or letters with a plain counter, says nothing by itself.
COUNTER: Final = re.compile(r"[^0-9A-Z]*[0-9]{1,9}|.*[^0-9A-Za-z][0-9]{1,9}", re.DOTALL)


class _Call(Struct, gc=False):
    run: str  # empty: several runs have had this id
    principal: str
    seen: float


class CallRuns:
    """Ids seen in answers, the newest `CALLS_MAX` of the last `seconds`. Times are seconds on the caller's clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: OrderedDict[str, _Call] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls)

    def saw(self, now: float, ids: Iterable[str], run: str, principal: str) -> None:
        for each in ids:
            if len(each) < ID_CHARS_MIN or COUNTER.fullmatch(each):
                continue
            known = self._calls.pop(each, None)
            same = known is None or (known.run, known.principal) == (run, principal) or now - known.seen >= self._seconds
            self._calls[each] = _Call(run if same else "", principal, now)
            if len(self._calls) > CALLS_MAX:
                self._calls.popitem(last=False)

    def sweep(self, now: float) -> None:
        """Forget those that name nobody any more; the cost grows only with what is forgotten."""
        while self._calls and now - next(iter(self._calls.values())).seen >= self._seconds:
            self._calls.popitem(last=False)

    def run_of(self, now: float, id_: str, principal: str) -> str:
        """Empty: none, or nobody can tell. A principal hears of its own runs, whoever has the shared token of all."""
        call = self._calls.get(id_)
        if call is None or now - call.seen >= self._seconds or (principal and principal != call.principal):
            return ""
        return call.run
