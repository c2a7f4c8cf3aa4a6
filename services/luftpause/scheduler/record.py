"""How does every event get into a log without the scheduler waiting for it?

The host's loop only puts event and decisions into a bounded queue. A thread hides names, encodes and writes; it does so in small
batches, since it keeps the interpreter to itself while it encodes. If the disk is full or too slow, events are lost and counted, the log is
ended, and a later one begins with the state as it is then.
"""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from luftpause import __version__
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.scheduler.core.decide import initial
from luftpause.scheduler.core.decisions import Decision, Step
from luftpause.scheduler.core.events import Event
from luftpause.scheduler.core.model import State
from luftpause.scheduler.record_file import FOLDER_MODE, LogFile, file_name
from luftpause.scheduler.record_log import VERSION, Begins, Ends, Header, event_line, header_line
from luftpause.scheduler.record_names import Names

POLL_SECONDS: Final = 0.05
BATCH_EVENTS: Final = 32  # encoded in one go, about 0.3 ms
RETRY_SECONDS: Final = 30.0  # after the disk failed
LOOK_SECONDS: Final = 5.0  # whether the log is still where it was begun
CLOSE_SECONDS_MAX: Final = 10.0
KEY_BYTES: Final = 32
SWITCH_SECONDS: Final = 0.0005

log = Log("scheduler")

Item = tuple[Event, tuple[Decision, ...]]


class Start(Struct, frozen=True, gc=False):
    """A log begins here."""

    state: State
    begins: Begins


class Recorder:
    """Its `observe` is one of the host's observers. `lost` counts events that are in no log."""

    def __init__(
        self,
        folder: Path,
        *,
        clear: bool = False,
        bytes_max: int = 2**30,
        queue_events_max: int = 50_000,
        retry_seconds: float = RETRY_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        open_file: Callable[[Path], LogFile] = LogFile,
    ) -> None:
        """Raises LuftpauseError where the directory can't be made or written to."""
        self.folder = folder
        self._lost_here = self._lost_there = 0  # on the loop, in the thread: each counts alone
        self._names = None if clear else Names(os.urandom(KEY_BYTES))
        self._bytes_max = bytes_max
        self._queue_events_max = queue_events_max
        self._retry_seconds = retry_seconds
        self._look_seconds = look_seconds
        self._poll_seconds = poll_seconds
        self._open_file = open_file
        self._queue: deque[Item | Start] = deque()
        self._awaited: Begins | None = "start"  # a state is needed before the next event
        self._off = False  # the thread can't write now
        self._complained = False
        self._retry_at = 0.0
        self._look_at = 0.0
        self._lost_before = 0  # by the time of the last header
        self._parts = 0
        self._epoch = ""
        self._file: LogFile | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        _make(folder)

    @property
    def lost(self) -> int:
        return self._lost_here + self._lost_there

    def start(self, epoch: str) -> None:
        """`epoch` names this life of the scheduler."""
        self._epoch = epoch
        self._thread.start()

    # ---- on the host's loop

    def observe(self, state: State, event: Event, step: Step) -> None:
        """Put an event into the queue: about 0.3 us."""
        queue = self._queue
        if self._awaited is not None and not self._begin(state):
            self._lost_here += 1
        elif len(queue) >= self._queue_events_max:
            self._awaited = "gap"
            self._lost_here += 1
            log.warning("recording lags: events are lost until half of those that wait are written", folder=str(self.folder))
        else:
            queue.append((event, step.decisions))

    def _begin(self, state: State) -> bool:
        """A new log from this state on, if there is room and somebody who writes it. An overflown queue is half empty first."""
        begins = self._awaited
        if begins is None or self._off or len(self._queue) > self._queue_events_max // 2:
            return False
        self._awaited = None
        self._queue.append(Start(state, begins))
        return True

    def close(self) -> None:
        """Write what waits, end the log. Blocks for at most 10 s: a disk that hangs loses the rest."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS_MAX)
            if self._thread.is_alive():
                log.warning("the recorder's disk does not answer: the end of its log is missing", folder=str(self.folder))

    # ---- in the thread

    def _work(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            self._drain()
        self._drain()
        if self._file is not None:
            self._file.close("stop")

    def _drain(self) -> None:
        if self._off and time.monotonic() >= self._retry_at:
            self._off = False
        try:
            self._look()
        except OSError as error:
            self._fail(error)
        while self._queue:
            try:
                self._write_some()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the recording, the scheduler goes on
                self._fail(error)

    def _look(self) -> None:
        """A log that somebody has deleted takes all that is written, and nobody will ever read it."""
        now = time.monotonic()
        if self._file is not None and now >= self._look_at:
            self._look_at = now + self._look_seconds
            self._file.still_there()

    def _write_some(self) -> None:
        """The next items of the queue: the start of a log, or a batch of events."""
        items: list[Item] = []
        while self._queue and len(items) < BATCH_EVENTS:
            if isinstance(self._queue[0], Start):
                break
            items.append(cast("Item", self._queue.popleft()))
        if self._file is None:
            self._lost_there += len(items)  # between a failure and the next start
        elif items:
            self._write(self._file, items)
        if self._queue and isinstance(self._queue[0], Start):
            self._open(cast("Start", self._queue.popleft()))

    def _write(self, file: LogFile, items: list[Item]) -> None:
        try:
            file.write(b"".join([self._line(*item) for item in items]), len(items))
        except Exception:
            self._lost_there += len(items)
            raise
        if file.bytes >= self._bytes_max and self._awaited is None:
            self._awaited = "rotation"  # the log goes on until the state comes

    def _line(self, event: Event, decisions: tuple[Decision, ...]) -> bytes:
        if self._names is not None:
            hide = self._names.hide
            event, decisions = hide(event), tuple([hide(each) for each in decisions])
        return event_line(event, decisions)

    def _open(self, start: Start) -> None:
        state, begins = start.state, start.begins
        self._end("rotation" if begins == "rotation" else "gap")
        at = datetime.now(UTC)
        self._parts += 1
        lost = self.lost
        specs = tuple([state.replicas[name].spec for name in state.names])
        settings = self._names.hide(state.settings) if self._names is not None else state.settings
        fresh = begins == "start" and state == initial(state.settings, specs, state.now)
        header = Header(
            record=VERSION, luftpause=__version__, policy=state.settings.policy, seed=self._epoch,
            recorded_at=at.isoformat(timespec="milliseconds"), now=state.now, settings=settings, replicas=specs, begins=begins,
            part=self._parts, hashed=self._names is not None, lost=lost - self._lost_before,
        )  # fmt: skip
        line = header_line(header, None) if fresh else self._snapshot(header, state)
        _make(self.folder)  # somebody may have removed it
        self._file = self._open_file(self.folder / file_name(at, self._epoch, self._parts))
        self._file.write(line, 0)
        self._lost_before = lost
        log.info("recording", path=str(self._file.path), begins=begins, lost=header.lost)
        self._complained = False

    def _snapshot(self, header: Header, state: State) -> bytes:
        """About 0.1 ms per run, in which the loop gets the interpreter back ten times as soon as usual."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            return header_line(header, state if self._names is None else self._names.hide(state))
        finally:
            sys.setswitchinterval(usual)

    def _end(self, why: Ends) -> None:
        if self._file is not None:
            self._file.close(why)
            self._file = None

    def _fail(self, error: Exception) -> None:
        """Say so once, give up this log, and try a new one later."""
        self._end("gap")
        self._off = True
        self._awaited = "gap"
        self._retry_at = time.monotonic() + self._retry_seconds
        if not self._complained:
            self._complained = True
            mend = f"the scheduler goes on without; a new log begins when it works again (tried every {self._retry_seconds:g} s)"
            log.error("recording failed: " + mend, folder=str(self.folder), error=f"{type(error).__name__}: {error}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write in {folder}")
    except OSError as error:
        raise LuftpauseError(f"scheduler.record: can't write logs to {folder}: {error}", code="record") from error
