"""What becomes of a fault in work that goes on in the background, and must not end its process?"""

import contextlib
from collections.abc import Generator
from typing import Final

from luftpause.kit.logs import Log
from luftpause.kit.metrics import Counter

KINDS_MAX: Final = 256  # that are remembered as logged

Kind = tuple[str, str, str, int]


class Faults:
    """
    Counts each by the work that met it. Its traceback is logged the first time only, as a loop may meet it for ever. Of one event loop.

    `counter` has one label, the work. `means`: what a fault of each work means, and what to do.
    """

    def __init__(self, log: Log, counter: Counter, means: dict[str, str]) -> None:
        self.counter = counter
        self._log = log
        self._means = means
        self._logged: set[Kind] = set()

    def note(self, work: str, error: Exception) -> None:
        """To be called where `error` is handled."""
        self.counter.add((work,))
        kind = (work, type(error).__name__, *_place(error))
        if kind not in self._logged and len(self._logged) < KINDS_MAX:
            self._logged.add(kind)
            problem = f"{type(error).__name__}: {error}"
            self._log.exception(
                "a fault in the background; please report it with this line", work=work, problem=problem, means=self._means[work]
            )

    @contextlib.contextmanager
    def noted(self, work: str) -> Generator[None]:
        """Whatever goes wrong within the block ends the block, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is what it is for
            self.note(work, error)


def _place(error: Exception) -> tuple[str, int]:
    """File and line where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
