"""Which runs are there, whose are they, and how are they found?"""

from collections.abc import Callable, Iterator

from luftpause.runtime.entries import Entry
from luftpause.runtime.journal_load import Loaded
from luftpause.runtime.refusals import unknown_handle


class Register:
    """Entries by handle, parents before their children. `here`: this runtime's name; `owner_lives`: one that is gone keeps nobody out."""

    def __init__(self, here: str, owner_lives: Callable[[str], bool]) -> None:
        self.entries: dict[str, Entry] = {}
        self._by_task: dict[str, str] = {}
        self._here = here
        self._owner_lives = owner_lives

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def take(self, loaded: Loaded) -> None:
        """What an earlier process left."""
        for handle, run in loaded.runs.items():
            self.entries[handle] = Entry(run)
        for handle, run in loaded.runs.items():  # now, because damage can put a child before its parent
            entry = self.entries[handle]
            entry.shown = run
            entry.parent = self.entries.get(run.created.parent or "")
            self.add(entry)
        for entry in self:
            entry.spent(None, entry.run)

    def add(self, entry: Entry) -> None:
        self.entries[entry.handle] = entry
        if entry.run.created.task_id is not None:
            self._by_task[entry.run.created.task_id] = entry.handle
        if entry.parent is not None:
            entry.parent.children.append(entry)

    def drop(self, handle: str) -> None:
        entry = self.entries.pop(handle, None)
        if entry is not None:
            self._by_task.pop(entry.run.created.task_id or "", None)

    def forget(self, entry: Entry) -> None:
        """A run that could not be created."""
        self.drop(entry.handle)
        if entry.parent is not None:
            entry.parent.children.remove(entry)
        entry.release()

    def find(self, handle: str, owner: str | None) -> Entry:
        """Raises LuftpauseError (`unknown_handle`), also where it is somebody else's."""
        entry = self.entries.get(handle)
        if entry is not None and entry.shown is not None and self._may(entry.run.created.owner, owner):
            return entry
        raise unknown_handle(handle, self._here)

    def of_task(self, task_id: str, owner: str | None) -> Entry:
        """Raises LuftpauseError (`unknown_handle`)."""
        return self.find(self._by_task.get(task_id, task_id), owner)

    def _may(self, owns: str | None, asks: str | None) -> bool:
        return owns is None or owns == asks or not self._owner_lives(owns)
