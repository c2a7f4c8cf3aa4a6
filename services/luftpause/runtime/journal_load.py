"""Which runs does a journal tell of, and which of them can't be trusted?"""

from collections.abc import Iterable

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.advance import advance
from luftpause.runtime.core.events import Created, Event, Finished
from luftpause.runtime.core.model import Run
from luftpause.runtime.journal_lines import Damaged, Entry, decode
from luftpause.runtime.ports import ServiceClass


class Lines(Struct):
    """What the journal holds of one run. `bytes_kept`: what compaction would keep once it has finished."""

    seq: int = 0
    bytes_all: int = 0
    bytes_kept: int = 0
    finished: bool = False

    def add(self, seq: int, size: int, event: Event) -> None:
        self.seq = seq + 1
        self.bytes_all += size
        if self.finished or lasting(event):
            self.bytes_kept += size
        self.finished = self.finished or isinstance(event, Finished)


class Loaded(Struct, frozen=True):
    """`lost`: runs that must be failed, and why. `damaged`: line numbers and what is wrong. `end`: where the last whole line ends."""

    runs: dict[str, Run]
    lines: dict[str, Lines]
    lost: dict[str, str]
    damaged: tuple[tuple[int, str], ...]
    end: int


def lasting(event: Event) -> bool:
    """Does compaction keep this event of a finished run? What comes behind its end stays in any case."""
    return isinstance(event, Created | Finished)


class _Loader:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.lines: dict[str, Lines] = {}
        self.lost: dict[str, str] = {}
        self.damaged: list[tuple[int, str]] = []
        self.accused: dict[str, int] = {}  # run → number of the damaged line that says it is the run's
        self.unclear: int = 0  # number of the last damaged line whose run can't be told
        self.last_line: dict[str, int] = {}

    def take(self, number: int, line: bytes) -> None:
        match decode(line):
            case Damaged(why, runs, newer):
                if newer:
                    raise LuftpauseError(f"line {number} of the journal: {why}; start a newer luftpause", code="journal_newer")
                self.damaged.append((number, why))
                self.accused.update(dict.fromkeys(runs, number))
                if not runs or any(run not in self.lines for run in runs):
                    self.unclear = number
            case Entry() as entry:
                self._fold(number, entry, len(line) + 1)

    def _fold(self, number: int, entry: Entry, size: int) -> None:
        run, event = entry.run, entry.event
        lines = self.lines.setdefault(run, Lines())
        expected = lines.seq
        lines.add(entry.seq, size, event)
        self.last_line[run] = number
        known = self.runs.get(run)
        if known is None and not isinstance(event, Created):
            known = Run(created=_unknown(run))
        if entry.seq != expected and not isinstance(event, Finished):
            self.lost.setdefault(run, f"line {number} of the journal is not the one that should follow")
        if run in self.lost and not isinstance(event, Finished):
            self.runs.setdefault(run, known or Run(created=_unknown(run)))
            return
        try:
            self.runs[run] = advance(known, event).run
        except ValueError as error:
            self.lost[run] = f"line {number} of the journal doesn't fit: {error}"
            self.runs.setdefault(run, known or Run(created=_unknown(run)))

    def loaded(self, end: int) -> Loaded:
        """Finished runs keep their result, whatever is missing before it. Of the others, each that may miss something is lost."""
        for run, number in self.accused.items():
            self.lost.setdefault(run, f"line {number} of the journal is damaged")
        for run, number in self.last_line.items():
            if number < self.unclear:
                self.lost.setdefault(run, f"line {self.unclear} of the journal is damaged and may belong to this run")
        lost = {run: why for run, why in self.lost.items() if run in self.runs and not self.runs[run].state.ended}
        return Loaded(self.runs, self.lines, lost, tuple(self.damaged), end)


def load(lines: Iterable[tuple[int, bytes]]) -> Loaded:
    """Fold every complete line, given with the offset behind it. Raises LuftpauseError where a newer version wrote one."""
    loader, end = _Loader(), 0
    for number, (offset, line) in enumerate(lines, 1):
        if line.strip():  # an editor may leave blank lines
            loader.take(number, line)
        end = offset
    return loader.loaded(end)


def _unknown(run: str) -> Created:
    """Stands for a `created` that is lost."""
    return Created(
        handle=run,
        at=0,
        task="(lost: the journal is damaged)",
        model="",
        service_class=ServiceClass.INTERACTIVE,
        system="",
        max_tool_calls=0,
        max_tokens=0,
    )
