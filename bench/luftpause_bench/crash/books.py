"""Which promises did a life break?"""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from luftpause.runtime.core.events import Answered, CallEnded
from luftpause.runtime.core.model import Run
from luftpause.runtime.journal_lines import Entry, decode
from luftpause.runtime.journal_load import load

Call = tuple[str, str]  # the tool and what it was asked, which is different for every call of every run


class Books:
    """Reads what the journal, the tool server and the clients know; `broken` lists what can't be."""

    def __init__(self, journal: Path, calls: Path, shown: Path) -> None:
        self._journal = journal
        self._calls = calls
        self._shown = shown
        self._results: set[Call] = set()  # in the journal when the last life ended
        self._read = 0  # bytes of `calls` that were looked at
        self.started: Counter[Call] = Counter()
        self.broken: list[str] = []

    def after_a_life(self) -> None:
        """What the tools saw since, held against the results that the journal had before."""
        with self._calls.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            entry = orjson.loads(line)
            if entry["event"] == "started":
                self._call(entry)

    def before_a_life(self) -> None:
        """What the journal knows now."""
        names: dict[tuple[str, str], Call] = {}
        for entry in self._entries():
            match entry.event:
                case Answered(calls=asked):
                    names |= {(entry.run, call.id): _call(call.name, orjson.loads(call.arguments)) for call in asked}
                case CallEnded(id=call_id) if (entry.run, call_id) in names:
                    self._results.add(names[entry.run, call_id])
                case _:
                    pass

    def at_the_end(self) -> dict[str, Run]:
        """All runs, folded from the journal; each that a client knew is there, has ended, and says what it ever said."""
        loaded = load(self._lines())
        self.broken += [f"{handle} was lost: {why}" for handle, why in loaded.lost.items()]
        self.broken += [f"line {number} is damaged: {why}" for number, why in loaded.damaged]
        said: dict[str, Any] = {}
        for line in self._shown.read_bytes().splitlines():
            handle, *what = orjson.loads(line)
            run = loaded.runs.get(handle)
            if run is None:
                self.broken.append(f"{handle} was shown and is gone")
            elif what[0] != "created":
                if said.setdefault(handle, what) != what:
                    self.broken.append(f"{handle} changed what it says: {said[handle]} became {what}")
                if [run.state.value, run.text] != [what[0], what[1] if what[1] is not None else what[2]]:
                    self.broken.append(f"{handle} is {run.state.value} in the journal and was shown as {what}")
        for handle, run in loaded.runs.items():
            if not run.state.ended or handle not in said:
                self.broken.append(f"{handle} never ended")
        return loaded.runs

    def _call(self, entry: Any) -> None:
        call = _call(entry["tool"], entry["arguments"])
        self.started[call] += 1
        if call in self._results:
            self.broken.append(f"{call} was made again although the journal had its result")
        if call[0] == "record" and self.started[call] > 1:
            self.broken.append(f"{call} was made {self.started[call]} times")

    def _lines(self) -> list[tuple[int, bytes]]:
        offset, lines = 0, list[tuple[int, bytes]]()
        for line in self._journal.read_bytes().split(b"\n")[:-1]:
            offset += len(line) + 1
            lines.append((offset, line))
        return lines

    def _entries(self) -> list[Entry]:
        if not self._journal.exists():
            return []
        found = [decode(line) for _, line in self._lines()]
        return [entry for entry in found if isinstance(entry, Entry)]


def _call(tool: str, arguments: dict[str, str]) -> Call:
    return tool, "".join(map(str, arguments.values()))
