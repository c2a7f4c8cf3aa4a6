"""Does the journal keep what it said it had, whatever happens to file, disk and process?"""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime import journal_writer
from luftpause.runtime.core.advance import finished, fold
from luftpause.runtime.core.events import Answered, AskedCall, BudgetUsed, CallEnded, CallStarted, Created, Event
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_disk import OsFiles
from luftpause.runtime.journal_lines import encode
from luftpause.runtime.journal_load import Loaded
from luftpause.runtime.journal_load import load as load_lines
from luftpause.runtime.ports import BudgetKind, RunState, ServiceClass
from tests.support.small_disk import SmallDisk


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=4096)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "RETRY_SECONDS", 0.01)


def created(run: str, task: str = "t") -> Created:
    return Created(run, 1.0, task, "m", ServiceClass.BATCH, "", 8, 0)


def story(run: str) -> tuple[Event, ...]:
    """Everything that a run with one tool call journals."""
    events: list[Event] = [created(run), Answered("", (AskedCall("a", "lookup", "{}"),)), CallStarted("a"), CallEnded("a", "A")]
    events.append(Answered("42"))
    return (*events, finished(fold(events).run, RunState.COMPLETED, "42", at=2.0, seconds=1.0))


def lines(run: str) -> list[bytes]:
    return [encode(run, seq, event) for seq, event in enumerate(story(run))]


async def load(config: RuntimeConfig) -> Loaded:
    async with await Journal.open(config) as journal:
        return await journal.load()


def write(config: RuntimeConfig, data: bytes) -> Path:
    config.state.mkdir(exist_ok=True)
    path = config.state / "runs.jsonl"
    path.write_bytes(data)
    return path


async def test_what_was_appended_is_loaded(config: RuntimeConfig) -> None:
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("run_1", 0, story("run_1")[:2])
        await journal.append("run_1", 2, story("run_1")[2:])
        await journal.append("run_2", 0, story("run_2")[:3])
    loaded = await load(config)
    assert loaded.runs == {"run_1": fold(story("run_1")).run, "run_2": fold(story("run_2")[:3]).run}
    assert (loaded.lost, loaded.damaged) == ({}, ())
    assert (config.state / "runs.jsonl").stat().st_mode & 0o077 == 0, "prompts are nobody else's business"


async def test_somebody_else_can_not_write_for_the_same_run(config: RuntimeConfig) -> None:
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("run_1", 0, [created("run_1")])
        with pytest.raises(ValueError, match="the journal is at event 1, not 0"):
            journal.append("run_1", 0, [created("run_1")])


async def test_many_appends_share_their_syncs(config: RuntimeConfig) -> None:
    config.state.mkdir()
    disk = SmallDisk(config.state, 10**9)
    async with await Journal.open(config, files=disk) as journal:
        await journal.load()
        await asyncio.gather(*(journal.append(f"run_{number}", 0, [created(f"run_{number}")]) for number in range(1000)))
    assert disk.syncs < 50


async def test_a_line_torn_at_any_byte_is_cut_off(config: RuntimeConfig) -> None:
    whole, torn = b"".join(lines("run_1")[:3]), lines("run_1")[3]
    for end in range(1, len(torn) - 1):  # without its newline alone it is whole
        path = write(config, whole + torn[:end])
        loaded = await load(config)
        assert loaded.runs == {"run_1": fold(story("run_1")[:3]).run}
        assert (loaded.lost, loaded.damaged) == ({}, ())
        assert path.read_bytes() == whole


async def test_zeros_that_a_power_cut_left_are_cut_off(config: RuntimeConfig) -> None:
    path = write(config, b"".join(lines("run_1")) + bytes(5000))
    assert (await load(config)).runs["run_1"].text == "42"
    assert path.read_bytes() == b"".join(lines("run_1"))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_a_run_with_a_damaged_line_is_lost_and_others_are_not(config: RuntimeConfig, number: int) -> None:
    damaged = lines("run_1")[:5]
    damaged[number - 1] = damaged[number - 1].replace(b'"event"', b'"evemt"')
    write(config, b"".join([*damaged, *lines("run_2")[:4]]))
    loaded = await load(config)
    assert loaded.damaged == ((number, "its checksum is wrong"),)
    assert list(loaded.lost) == ["run_1"]
    assert f"line {number}" in loaded.lost["run_1"] or f"line {number + 1}" in loaded.lost["run_1"]
    assert loaded.runs["run_2"] == fold(story("run_2")[:4]).run


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_a_finished_run_keeps_its_result_when_an_earlier_line_is_damaged(config: RuntimeConfig, number: int) -> None:
    damaged = lines("run_1")
    damaged[number - 1] = bytes(len(damaged[number - 1]) - 1) + b"\n"
    write(config, b"".join(damaged))
    loaded = await load(config)
    assert loaded.lost == {}
    assert (loaded.runs["run_1"].state, loaded.runs["run_1"].text) == (RunState.COMPLETED, "42")


async def test_a_line_that_nobody_can_read_costs_the_runs_that_it_may_belong_to(config: RuntimeConfig) -> None:
    first, second, third = lines("run_1")[:3], lines("run_2")[:3], lines("run_3")
    write(config, b"".join([*first, *second[:2], *third, b"\0" * 50 + b"\n", second[2]]))
    loaded = await load(config)
    assert list(loaded.lost) == ["run_1"], "run_2 goes on without a gap, run_3 has ended"
    assert "may belong to this run" in loaded.lost["run_1"]


async def test_damage_at_any_byte_of_a_journal_never_goes_unnoticed(config: RuntimeConfig) -> None:
    sound = b"".join([*lines("run_1")[:4], *lines("run_2")])
    truth = {"run_1": fold(story("run_1")[:4]).run, "run_2": fold(story("run_2")).run}
    for at in range(0, len(sound), 3):
        damaged = bytearray(sound)
        damaged[at] ^= 0x15
        write(config, bytes(damaged))
        loaded = await load(config)
        for run, expected in truth.items():
            found = loaded.runs.get(run)
            assert found is None or run in loaded.lost or found == expected or found.text == expected.text == "42", f"{run}, byte {at}"
        assert loaded.damaged or at >= len(sound) - 1, f"byte {at}"


async def test_a_journal_of_a_newer_version_is_left_alone(config: RuntimeConfig) -> None:
    import zlib

    body = b'{"v":2,"run":"run_1","seq":0,"event":{}'
    path = write(config, b'%s,"crc":%d}\n' % (body, zlib.crc32(body)))
    before = path.read_bytes()
    with pytest.raises(LuftpauseError, match="start a newer luftpause"):
        await load(config)
    assert path.read_bytes() == before


async def test_a_second_runtime_is_told_who_has_the_directory(config: RuntimeConfig) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from luftpause.kit.config import RuntimeConfig\n"
        "from luftpause.runtime.journal import Journal\n"
        "async def main():\n"
        "    async with await Journal.open(RuntimeConfig(state=Path(sys.argv[1]))):\n"
        "        print('open', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(config.state), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        async with asyncio.timeout(60):
            assert await other.stdout.readline() == b"open\n"
        with pytest.raises(LuftpauseError, match=rf"another runtime \(pid {other.pid}\) uses the state directory") as refused:
            await Journal.open(config)
        assert refused.value.code == "state_in_use"
    finally:
        other.kill()
        await other.communicate()
    async with await Journal.open(config):
        pass


async def test_a_state_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LuftpauseError, match=r"or set runtime\.state") as refused:
        await Journal.open(RuntimeConfig(state=tmp_path / "file" / "state"))
    assert refused.value.code == "state_unusable"


# ---- a full disk ------------------------------------------------------------------------------------------------


async def small(config: RuntimeConfig, free: int) -> tuple[Journal, SmallDisk]:
    """A journal with its reserve filled and `free` bytes beside it."""
    config.state.mkdir()
    disk = SmallDisk(config.state, 10**9)
    journal = await Journal.open(config, files=disk)
    await journal.load()
    disk.capacity -= disk.free - free
    return journal, disk


async def test_on_a_full_disk_spawns_are_refused_and_runs_go_on(config: RuntimeConfig) -> None:
    journal, disk = await small(config, 600)
    async with journal:
        await journal.append("run_1", 0, [created("run_1")])
        with pytest.raises(LuftpauseError, match="make room, then spawn again") as refused:
            await journal.append("run_2", 0, [created("run_2", "x" * 1000)])
        assert refused.value.code == "disk_full"
        assert journal.short
        await journal.append("run_1", 1, story("run_1")[1:])
        with pytest.raises(LuftpauseError, match="make room"):
            await journal.append("run_3", 0, [created("run_3")])
        disk.capacity += 10_000
        async with asyncio.timeout(60):
            while journal.short:
                await asyncio.sleep(0.01)
        await journal.append("run_2", 0, [created("run_2", "x" * 1000)])
    loaded = await load(config)
    assert loaded.runs["run_1"] == fold(story("run_1")).run
    assert list(loaded.runs) == ["run_1", "run_2"]
    assert loaded.damaged == ()


async def test_tool_calls_wait_before_the_reserve_is_used_up_and_results_do_not(config: RuntimeConfig) -> None:
    journal, disk = await small(config, 1000)
    async with journal:
        for run in ("run_1", "run_2", "run_3"):
            await journal.append(run, 0, story(run)[:1])
        await journal.append("run_1", 1, story("run_1")[1:3])
        await journal.append("run_2", 1, [Answered("y" * 3000)])  # most of the reserve
        waiting = journal.append("run_3", 1, story("run_3")[1:3])
        await journal.append("run_1", 3, story("run_1")[3:])
        assert not waiting.done()
        assert journal.waiting
        disk.capacity += 10_000
        async with asyncio.timeout(60):
            await waiting
    loaded = await load(config)
    assert loaded.runs["run_3"] == fold(story("run_3")[:3]).run
    assert loaded.runs["run_1"].text == "42"
    assert loaded.damaged == ()


async def test_the_end_of_a_run_that_waits_for_room_stands_behind_what_waited(config: RuntimeConfig) -> None:
    journal, _ = await small(config, 1000)
    async with journal:
        await journal.append("run_1", 0, story("run_1")[:1])
        await journal.append("run_2", 0, [created("run_2")])
        await journal.append("run_2", 1, [Answered("y" * 3600)])
        waiting = journal.append("run_1", 1, story("run_1")[1:3])
        run = fold(story("run_1")[:3]).run
        await journal.append("run_1", 3, [finished(run, RunState.CANCELLED, "cancelled", at=2, seconds=1)])
        assert waiting.done()
    loaded = await load(config)
    assert loaded.runs["run_1"].state is RunState.CANCELLED
    assert loaded.damaged == ()


async def test_when_nothing_is_left_everything_waits_and_nothing_is_lost(config: RuntimeConfig) -> None:
    journal, disk = await small(config, 1000)
    async with journal:
        await journal.append("run_1", 0, [created("run_1")])
        big = journal.append("run_1", 1, [Answered("y" * 20_000)])
        with pytest.raises(LuftpauseError, match="make room"):
            await journal.append("run_2", 0, [created("run_2")])
        assert not big.done()
        disk.capacity += 100_000
        async with asyncio.timeout(60):
            await big
    assert (await load(config)).runs["run_1"].conclusion == "y" * 20_000


async def test_a_journal_that_can_not_be_written_is_closed_all_the_same(config: RuntimeConfig) -> None:
    journal, disk = await small(config, 1000)
    await journal.append("run_1", 0, [created("run_1")])
    disk.capacity = 0
    big = journal.append("run_1", 1, [Answered("y" * 20_000)])
    async with asyncio.timeout(60):
        await journal.close()
    with pytest.raises(LuftpauseError, match="is full"):
        await big
    assert (await load(config)).runs["run_1"] == fold([created("run_1")]).run


class Unsyncable(OsFiles):
    def __init__(self) -> None:
        self.broken = False

    def sync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


async def test_a_disk_error_is_named_and_what_was_not_synced_is_written_again(config: RuntimeConfig) -> None:
    files = Unsyncable()
    async with await Journal.open(config, files=files) as journal:
        await journal.load()
        await journal.append("run_1", 0, [created("run_1")])
        files.broken = True
        later = journal.append("run_1", 1, [Answered("42")])
        with pytest.raises(LuftpauseError, match="can't be written: Input/output error"):
            await journal.append("run_2", 0, [created("run_2")])
        files.broken = False
        async with asyncio.timeout(60):
            await later
    assert (await load(config)).runs["run_1"].conclusion == "42"


class Unreservable(OsFiles):
    def allocate(self, fd: int, size: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


async def test_a_filesystem_that_reserves_nothing_is_no_full_disk(config: RuntimeConfig) -> None:
    async with await Journal.open(config, files=Unreservable()) as journal:
        await journal.load()
        assert not journal.short
        await journal.append("run_1", 0, [created("run_1")])


# ---- compaction -------------------------------------------------------------------------------------------------


async def test_compaction_keeps_results_and_all_of_what_is_unfinished(config: RuntimeConfig) -> None:
    path = config.state / "runs.jsonl"
    async with await Journal.open(config) as journal:
        await journal.load()
        for run in ("run_1", "run_2", "run_3"):
            await journal.append(run, 0, story(run))
        await journal.append("run_4", 0, story("run_4")[:4])
        await journal.compact(["run_3"])
        kept = path.read_bytes()
        await journal.append("run_4", 4, story("run_4")[4:])
    assert kept == b"".join(line for run in ("run_1", "run_2") for line in (lines(run)[0], lines(run)[-1])) + b"".join(lines("run_4")[:4])
    loaded = await load(config)
    assert loaded.runs == {run: fold(story(run)).run for run in ("run_1", "run_2", "run_4")}
    assert (loaded.lost, loaded.damaged) == ({}, ())
    assert not (config.state / "runs.part").exists()


async def test_compaction_is_worth_it_when_finished_runs_make_up_most_of_a_large_file(config: RuntimeConfig) -> None:
    config = config.model_copy(update={"journal_compact_bytes": 1000})
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("run_1", 0, [created("run_1", "x" * 2000)])
        assert not journal.worth_compacting([])
        long = story("run_2")
        await journal.append("run_2", 0, [*long[:3], CallEnded("a", "y" * 5000), *long[4:]])
        assert journal.worth_compacting([])
        await journal.compact([])
        assert not journal.worth_compacting([])


async def test_a_journal_on_another_disk_stays_there_when_it_is_compacted(config: RuntimeConfig, tmp_path: Path) -> None:
    """Its name in the state directory is a symbolic link."""
    elsewhere = tmp_path / "elsewhere" / "runs.jsonl"
    elsewhere.parent.mkdir()
    config.state.mkdir(parents=True, exist_ok=True)
    name = config.state / "runs.jsonl"
    name.symlink_to(elsewhere)
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("run_1", 0, story("run_1"))
        await journal.compact([])
        await journal.append("run_2", 0, [created("run_2")])
    assert name.is_symlink()
    assert not name.with_suffix(".part").exists()
    assert set((await load(config)).runs) == {"run_1", "run_2"}
    assert b"run_2" in elsewhere.read_bytes()


async def test_a_compaction_that_finds_no_room_leaves_the_journal_as_it_was(config: RuntimeConfig) -> None:
    journal, disk = await small(config, 3000)
    async with journal:
        await journal.append("run_1", 0, story("run_1"))
        await journal.append("run_2", 0, [created("run_2", "x" * 1500)])
        disk.capacity -= disk.free
        with pytest.raises(OSError, match="No space"):
            await journal.compact([])
        await journal.append("run_2", 1, [Answered("42")])
    loaded = await load(config)
    assert loaded.runs["run_1"] == fold(story("run_1")).run
    assert loaded.runs["run_2"].conclusion == "42"
    assert sorted(file.name for file in config.state.iterdir()) == ["runs.jsonl", "runs.lock", "runs.reserve"]


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "carriage returns": lambda data: data.replace(b"\n", b"\r\n"),
    "blank lines": lambda data: data.replace(b"\n", b"\n\n"),
    "no newline at the end": lambda data: data[:-1],
    "both": lambda data: data[:-1].replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_what_an_editor_does_to_line_ends_loses_nothing(config: RuntimeConfig, edit: str) -> None:
    write(config, EDITS[edit](b"".join([*lines("run_1"), *lines("run_2")[:3]])))
    for _ in range(2):
        loaded = await load(config)
        assert loaded.runs == {"run_1": fold(story("run_1")).run, "run_2": fold(story("run_2")[:3]).run}
        assert (loaded.lost, loaded.damaged) == ({}, ())
        async with await Journal.open(config) as journal:
            await journal.load()
            await journal.compact([])


async def test_a_file_in_place_of_the_state_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(LuftpauseError, match="state can't be used: it is not a directory"):
        await Journal.open(RuntimeConfig(state=tmp_path / "state"))


@pytest.mark.parametrize("what", ["directory", "file", "replaced"])
async def test_a_journal_that_is_deleted_under_a_running_runtime_is_reported(
    what: str, config: RuntimeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """What went into a file that no later process finds was not kept."""
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("a", 0, story("a")[:2])
        elsewhere = config.state.with_name("elsewhere")
        if what == "directory":
            config.state.rename(elsewhere)
        else:
            (config.state / "runs.jsonl").rename(elsewhere)
        if what == "replaced":
            (config.state / "runs.jsonl").touch()
        running = journal.append("a", 2, story("a")[2:])
        with pytest.raises(LuftpauseError, match="somebody deleted it, or put another in its place") as refused:
            await journal.append("b", 0, [created("b")])
        assert refused.value.status == 507
        assert "the journal can't be written; runs wait" in caplog.text
        assert not running.done()
        if what == "directory":
            elsewhere.rename(config.state)
        else:
            elsewhere.rename(config.state / "runs.jsonl")
        await running
    assert (await load(config)).runs["a"].state is RunState.COMPLETED


async def test_compaction_keeps_what_a_budget_used_after_the_end_of_its_run(config: RuntimeConfig) -> None:
    counted = [BudgetUsed(30.0), BudgetUsed(60.0, exceeded=BudgetKind.SECONDS, used=60.0)]
    async with await Journal.open(config) as journal:
        await journal.load()
        await journal.append("a", 0, [*story("a"), *counted])
        await journal.append("b", 0, story("b")[:3])
        before = (await load_beside(config)).runs
        await journal.compact([])
        await journal.append("a", journal.seq("a"), [BudgetUsed(61.0)])
    after = await load(config)
    assert (after.lost, after.damaged) == ({}, ())
    assert after.runs["b"] == before["b"]
    assert (after.runs["a"].exceeded, after.runs["a"].exceeded_used, after.runs["a"].budget_seconds) == (BudgetKind.SECONDS, 60.0, 61.0)
    assert (after.runs["a"].text, len((config.state / "runs.jsonl").read_bytes().splitlines())) == ("42", 2 + 2 + 3 + 1)


async def load_beside(config: RuntimeConfig) -> Loaded:
    """As another process would find it now."""
    offset, found = 0, list[tuple[int, bytes]]()
    for line in (config.state / "runs.jsonl").read_bytes().splitlines():
        offset += len(line) + 1
        found.append((offset, line))
    return load_lines(found)
