"""Does the recorder write all it can, cleanly, and never hold up or fail the scheduler?"""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import Load, ProbeOutcome, ReplicaProbed, ReplicaSpec, Resync, TurnFinished, TurnRequested
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.record_file import LogFile
from luftpause.scheduler.record_log import read_header
from luftpause.scheduler.replay import Replayed, replay

SPECS = (ReplicaSpec("a", "http://a", ("m",)),)
WAIT_SECONDS = 10.0


class World:
    """A core whose events a recorder sees: each turn asks, is placed and ends."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.state: State = initial(Settings(start_grace_seconds=0.0), SPECS, 100.0)
        self.recorder = Recorder(folder, poll_seconds=0.001, **options)
        self.recorder.start("EPOCH")
        self.now = 100.0
        self.turns = 0
        self.tell(Resync(self.now, "d", "s", "b"))
        self.tell(ReplicaProbed(self.now, "a", ProbeOutcome.OK, Load(0, 0)))

    def tell(self, event: object) -> None:
        step = decide(self.state, event)
        self.recorder.observe(self.state, event, step)
        self.state = step.state

    def turn(self, number: int = 1) -> None:
        for _ in range(number):
            self.turns += 1
            self.now += 1.0
            name = f"t{self.turns}"
            self.tell(TurnRequested(self.now, "d", name, 1, f"my-run-{self.turns % 3}", "m", caller="my-caller"))
            self.tell(TurnFinished(self.now + 0.5, "d", name, 1))


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest):
    made: list[World] = []

    def make(**options: object) -> World:
        made.append(World(tmp_path / "logs", **options))
        return made[-1]

    yield make
    for each in made:
        each.recorder.close()


Make = Callable[..., World]


def logs(world: World) -> list[Path]:
    return sorted(world.recorder.folder.iterdir())


def replayed(path: Path) -> Replayed:
    with path.open("rb") as lines:
        return replay(lines)


def until(condition: Callable[[], bool]) -> None:
    """The recorder's thread tells nobody what it has done."""
    ticks = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.002)):
        if condition():
            return
        ticks.wait(0.002)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("clear", [True, False])
def test_a_log_leads_to_the_same_decisions_and_only_a_clear_one_names_anybody(world: Make, clear: bool) -> None:
    it = world(clear=clear)
    it.turn(40)
    it.recorder.close()
    (path,) = logs(it)
    found = replayed(path)
    assert (found.events, found.different, found.torn) == (82, 0, False)
    assert found.decisions >= 40
    assert found.header.begins == "start"
    assert found.header.state is None
    assert found.end is not None
    assert found.end.end == "stop"
    assert found.end.events == 82
    assert (b"my-" in path.read_bytes()) is clear
    if clear:
        assert found.state == it.state


def test_a_log_is_for_its_owner_only_and_is_named_by_time_and_epoch(world: Make) -> None:
    it = world()
    it.turn()
    it.recorder.close()
    (path,) = logs(it)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.name.startswith("scheduler-2")
    assert path.name.endswith("Z-EPOCH-0001.jsonl")


def test_a_full_log_is_followed_by_one_that_begins_with_the_state(world: Make) -> None:
    it = world(bytes_max=8_000)
    for _ in range(30):
        it.turn(5)
        until(lambda: not it.recorder._queue)
    it.recorder.close()
    paths = logs(it)
    assert len(paths) > 3
    found = [replayed(path) for path in paths]
    assert sum(each.events for each in found) == 302
    assert [each.different for each in found] == [0] * len(found)
    assert [each.header.begins for each in found] == ["start", *["rotation"] * (len(found) - 1)]
    assert [each.end and each.end.end for each in found] == [*["rotation"] * (len(found) - 1), "stop"]
    assert it.recorder.lost == 0


def test_a_torn_last_line_is_told_and_left_out(world: Make, tmp_path: Path) -> None:
    it = world()
    it.turn(3)
    it.recorder.close()
    (path,) = logs(it)
    lines = path.read_bytes().splitlines(keepends=True)
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(lines[:-2]) + lines[-2][:-10])
    found = replayed(torn)
    assert found.torn
    assert found.end is None
    assert (found.events, found.different) == (7, 0)


class Disk:
    """Files on a disk that may be full or hang."""

    def __init__(self) -> None:
        self.full = False
        self.works = threading.Event()
        self.works.set()

    def open(self, path: Path) -> LogFile:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        disk = self

        class File(LogFile):
            def write(self, lines: bytes, events: int) -> None:
                disk.works.wait(WAIT_SECONDS)
                if disk.full:
                    os.write(self._file, lines[: len(lines) // 2])  # a part gets through
                    raise OSError(errno.ENOSPC, "No space left on device")
                super().write(lines, events)

        return File(path)


def test_a_full_disk_ends_the_log_at_a_whole_line_is_said_once_and_a_new_log_begins_with_the_state(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    it = world(open_file=disk.open, retry_seconds=0.0)
    it.turn(5)
    until(lambda: not it.recorder._queue)
    disk.full = True
    for _ in range(5):
        it.turn()
        until(lambda: not it.recorder._queue)
    disk.full = False
    until(lambda: it.turn() or len(logs(it)) == 2)  # it tries again by itself
    it.turn(5)
    it.recorder.close()
    before, after = (replayed(path) for path in logs(it))
    assert (before.events, before.different, before.torn) == (12, 0, False)
    assert before.end is not None
    assert before.end.end == "gap"
    assert after.header.begins == "gap"
    assert after.header.state is not None
    assert after.different == 0
    assert after.header.lost == it.recorder.lost > 0
    assert before.events + after.events + it.recorder.lost == 2 + 2 * it.turns
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_a_disk_that_hangs_holds_up_nobody_and_what_does_not_fit_the_queue_is_counted(world: Make) -> None:
    disk = Disk()
    it = world(open_file=disk.open, queue_events_max=20)
    it.turn(2)
    until(lambda: not it.recorder._queue)
    disk.works.clear()
    it.turn(1)
    until(lambda: not it.recorder._queue)  # the thread hangs with it
    it.turn(50)
    assert len(it.recorder._queue) <= 20
    assert it.recorder.lost >= 100 - 20 - 32
    disk.works.set()
    until(lambda: not it.recorder._queue)
    it.turn(3)
    it.recorder.close()
    before, after = (replayed(path) for path in logs(it))
    assert before.end is not None
    assert before.end.end == "gap"
    assert (before.different, after.different) == (0, 0)
    assert after.header.lost == it.recorder.lost
    assert before.events + after.events + it.recorder.lost == 2 + 2 * it.turns


@pytest.mark.parametrize("how", ["the file is deleted", "the directory is removed", "another file has its name"])
def test_a_log_that_somebody_removes_is_missed_and_followed_by_another(world: Make, caplog: pytest.LogCaptureFixture, how: str) -> None:
    it = world(retry_seconds=0.0, look_seconds=0.0)
    it.turn(2)
    until(lambda: len(logs(it)) == 1 and not it.recorder._queue)
    (first,) = logs(it)
    first.unlink()
    if how == "the directory is removed":
        first.parent.rmdir()
    elif how == "another file has its name":
        first.write_text("not a log")
    until(lambda: "recording failed" in caplog.text)
    until(lambda: not it.recorder._off)
    it.turn(3)
    it.recorder.close()
    found = replayed(logs(it)[-1])
    assert (found.header.begins, found.different, found.events) == ("gap", 0, 6)
    assert first.exists() is (how == "another file has its name")


def test_a_value_that_cannot_be_recorded_is_said_and_does_not_end_the_thread(world: Make, caplog: pytest.LogCaptureFixture) -> None:
    it = world(retry_seconds=0.0)
    it.turn()
    until(lambda: not it.recorder._queue)
    it.recorder._queue.append((object(), ()))
    until(lambda: not it.recorder._queue)
    until(lambda: it.turn() or len(logs(it)) == 2)
    it.recorder.close()
    assert "recording failed" in caplog.text
    assert [replayed(path).different for path in logs(it)] == [0, 0]


def test_a_file_that_could_not_even_get_its_first_line_is_taken_away(world: Make) -> None:
    disk = Disk()
    disk.works.clear()
    it = world(open_file=disk.open)
    until(lambda: bool(logs(it)))
    disk.full = True
    disk.works.set()
    until(lambda: not logs(it))


def test_a_directory_that_cannot_be_written_to_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LuftpauseError, match=r"scheduler.record: can't write logs to .*file/logs"):
        Recorder(tmp_path / "file" / "logs")


def test_a_log_in_the_middle_of_a_life_holds_no_name_either(world: Make) -> None:
    it = world(bytes_max=4_000)
    for _ in range(10):
        it.turn(5)
        until(lambda: not it.recorder._queue)
    it.recorder.close()
    assert len(logs(it)) > 1
    for path in logs(it):
        with path.open("rb") as lines:
            assert read_header(next(lines)).hashed
        assert b"my-" not in path.read_bytes()
