"""Does the ledger of quotas survive a restart, and is a damaged one noticed?"""

import asyncio
import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError
from luftpause.kit.quota_port import Granted, NotNow
from luftpause.scheduler.governor.app import Governing, governing
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.ledger_file import Keeper, LedgerFile, kept

FEW = {"scopes": [{"name": "requests", "limit": 3, "window_seconds": 3600, "protect": [0, 0, 0]}]}


class Time:
    """Each process has a clock of its own, all see the same calendar."""

    def __init__(self, now: float, epoch: float) -> None:
        self.now = now
        self.epoch_now = epoch

    def __call__(self) -> float:
        return self.now

    def epoch(self) -> float:
        return self.epoch_now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.epoch_now += seconds


def no_boot() -> tuple[str, float]:
    return "", 0.0


def config(path: Path | None, **targets: Any) -> Config:
    return Config.model_validate({"governor": {"state": path, "targets": targets or {"few": FEW}, "lease_seconds": 100}})


def start(path: Path, time: Time, monkeypatch: pytest.MonkeyPatch, **targets: Any) -> Governing:
    monkeypatch.setattr("luftpause.scheduler.governor.app.LedgerFile", lambda file: LedgerFile(file, time.epoch, no_boot))
    return governing(config(path, **targets), clock=time)


async def reserve(quotas: Governing, want: str, target: str = "few", priority: int = 1) -> Granted | NotNow:
    answer = await quotas.port.reserve(target, want, caller="x", priority=priority)
    assert isinstance(answer, Granted | NotNow)
    return answer


def save(quotas: Governing, path: Path, time: Time) -> None:
    file = LedgerFile(path, time.epoch, no_boot)
    file.write(file.snapshot(quotas.governor))


async def test_what_was_used_and_reserved_is_known_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, first = tmp_path / "quota.bin", Time(50_000, 1_000_000)
    old = start(path, first, monkeypatch)
    lease = await reserve(old, "a")
    assert isinstance(lease, Granted)
    await reserve(old, "b")
    await old.port.report("few", "b", 2, status=200, headers={})
    save(old, path, first)
    new = start(path, Time(7, 1_000_010), monkeypatch)
    assert isinstance(await reserve(new, "c"), Granted)
    assert isinstance(await reserve(new, "d"), NotNow)  # three of three
    assert (await new.port.report("few", "a", lease.fence, status=200, headers={})).settled  # type: ignore[union-attr]
    again = await reserve(new, "e")
    assert isinstance(again, NotNow)


async def test_leases_that_ended_while_nobody_kept_them_count_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, first = tmp_path / "quota.bin", Time(50_000, 1_000_000)
    old = start(path, first, monkeypatch)
    await reserve(old, "a")
    save(old, path, first)
    new = start(path, Time(7, 1_000_101), monkeypatch)
    new.governor.advance()
    target = new.governor.state.targets["few"]
    assert (set(target.leases), target.scopes["requests"].remaining) == (set(), 2)


async def test_a_calendar_that_is_set_while_nobody_keeps_the_ledger_ends_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "quota.bin"
    old = governing(config(path), clock=Time(50_000, 0))
    await reserve(old, "a")
    file = LedgerFile(path, lambda: 1_000_000.0, lambda: ("boot", 400.0))
    file.write(file.snapshot(old.governor))
    found = LedgerFile(path, lambda: 1_003_600.0, lambda: ("boot", 410.0)).read(governing(config(None), clock=Time(7, 0)).governor.state)
    (lease,) = found.state.targets["few"].leases.values()
    assert lease.expires == 7 + 90


async def test_targets_that_are_no_longer_configured_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, time = tmp_path / "quota.bin", Time(50_000, 1_000_000)
    save(start(path, time, monkeypatch, few=FEW, other=FEW), path, time)
    new = start(path, Time(7, 1_000_001), monkeypatch, few=FEW)
    assert set(new.governor.state.targets) == {"few"}


async def test_a_damaged_ledger_is_put_aside_and_background_calls_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, time = tmp_path / "quota.bin", Time(50_000, 1_000_000)
    path.write_bytes(b"\x93not a ledger")
    quotas = start(path, time, monkeypatch)
    assert "what was used and reserved is lost" in caplog.text
    assert not path.exists()
    assert (tmp_path / "quota.bin.damaged").read_bytes() == b"\x93not a ledger"
    assert isinstance(await reserve(quotas, "a", priority=1), Granted)
    assert isinstance(await reserve(quotas, "b", priority=2), NotNow)
    time.pass_by(101)  # the leases of before have ended by now
    quotas.governor.advance()
    assert isinstance(await reserve(quotas, "c", priority=2), Granted)


async def test_the_first_start_has_nothing_to_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = start(tmp_path / "new" / "quota.bin", Time(0, 0), monkeypatch)
    assert isinstance(await reserve(quotas, "a", priority=2), Granted)


def test_a_place_where_nothing_can_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"governor.state .*can't be written"):
        governing(config(tmp_path / "file" / "quota.bin"))
    with pytest.raises(ConfigError, match=r"governor.state .*is a folder; name a file in it"):
        governing(config(tmp_path))


def test_a_ledger_is_for_its_owner_only_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "quota.bin")
    file.check()
    file.write(b"1")
    file.write(b"2")
    assert [each.name for each in tmp_path.iterdir()] == ["quota.bin"]
    assert (tmp_path / "quota.bin").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "quota.bin").stat().st_mode) == 0o600


def test_one_scheduler_at_a_time_keeps_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "new" / "quota.bin"
    another = rf"another scheduler \(pid {os.getpid()}\) keeps its ledger there; stop it"
    with kept(path), kept(tmp_path / "new" / "other.bin"), kept(None), pytest.raises(ConfigError, match=another), kept(path):
        pass
    with kept(path):
        pass  # it is free again


async def test_the_ledger_is_written_while_it_changes_and_at_the_end(tmp_path: Path) -> None:
    quotas = governing(config(None))
    file = LedgerFile(tmp_path / "quota.bin")
    keeping = asyncio.create_task(Keeper(quotas.governor, file, seconds=0.01).run())
    path = tmp_path / "quota.bin"
    await reserve(quotas, "a")
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.002)
    written = path.stat().st_mtime_ns
    await asyncio.sleep(0.05)
    assert path.stat().st_mtime_ns == written  # nothing has changed
    await reserve(quotas, "b")
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    restored = file.read(governing(config(None)).governor.state).state
    assert set(restored.targets["few"].leases) == {"a", "b"}


async def test_a_write_that_is_under_way_at_the_stop_does_not_come_after_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas, file = governing(config(None)), LedgerFile(tmp_path / "quota.bin")
    write, begun, going_on = file.write, threading.Event(), threading.Event()

    def slow_at_first(data: bytes) -> None:
        if not begun.is_set():
            begun.set()
            assert going_on.wait(60)
        write(data)

    monkeypatch.setattr(file, "write", slow_at_first)
    await reserve(quotas, "a")
    keeping = asyncio.create_task(Keeper(quotas.governor, file, seconds=0.001).run())
    await asyncio.to_thread(begun.wait, 60)
    await reserve(quotas, "b")
    keeping.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not keeping.done()
    going_on.set()
    await asyncio.gather(keeping, return_exceptions=True)
    assert set(file.read(governing(config(None)).governor.state).state.targets["few"].leases) == {"a", "b"}


async def test_a_disk_that_takes_nothing_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quotas = governing(config(None))
    file = LedgerFile(tmp_path / "quota.bin")
    tries = 0

    def full(_: bytes) -> None:
        nonlocal tries
        tries += 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "write", full)
    keeping = asyncio.create_task(Keeper(quotas.governor, file, seconds=0.001).run())
    async with asyncio.timeout(60):
        while tries < 3:
            await reserve(quotas, f"{tries}")
            await asyncio.sleep(0.002)
            await quotas.port.release("few", f"{tries}", 1)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert caplog.text.count("can't be written") == 1
    assert [each.fields["problem"] for each in caplog.records] == ["No space left on device"]  # type: ignore[attr-defined]


async def test_a_fault_while_the_ledger_is_written_costs_that_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quotas, path = governing(config(None)), tmp_path / "quota.bin"
    file = LedgerFile(path)
    snapshot, faults = file.snapshot, quotas.governor.faults.counter

    def broken_at_first(governor: Governor) -> bytes:
        if faults.value(("ledger_file",)) < 2:
            raise RecursionError("maximum recursion depth exceeded")
        return snapshot(governor)

    monkeypatch.setattr(file, "snapshot", broken_at_first)
    await reserve(quotas, "a")
    keeping = asyncio.create_task(Keeper(quotas.governor, file, seconds=0.001).run())
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.002)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert set(file.read(governing(config(None)).governor.state).state.targets["few"].leases) == {"a"}
    (line,) = caplog.records
    assert vars(line)["fields"]["problem"] == "RecursionError: maximum recursion depth exceeded"


async def test_what_could_not_be_written_is_tried_again_though_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quotas = governing(config(None))
    file = LedgerFile(tmp_path / "quota.bin")
    write, tries = file.write, 0

    def full_at_first(data: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(28, "No space left on device")
        write(data)

    caplog.set_level("INFO")
    monkeypatch.setattr(file, "write", full_at_first)
    await reserve(quotas, "a")
    keeping = asyncio.create_task(Keeper(quotas.governor, file, seconds=0.001).run())
    async with asyncio.timeout(60):
        while not (tmp_path / "quota.bin").exists():
            await asyncio.sleep(0.002)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert set(file.read(governing(config(None)).governor.state).state.targets["few"].leases) == {"a"}
    assert [each.message for each in caplog.records][-1] == "the ledger of quotas is written again"


NOWHERE = [
    (errno.EROFS, "Read-only file system; name a place on a disk that is not mounted read-only"),
    (errno.ENOSPC, "No space left on device; make room on that disk"),
    (errno.EACCES, "Permission denied; is the folder yours"),
    (errno.EIO, "Input/output error; mend that, or name another place"),
]


@pytest.mark.parametrize(("code", "says"), NOWHERE)
def test_a_disk_that_takes_nothing_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ConfigError, match=f"governor.state .*quota.bin: can't be written: {says}"), kept(tmp_path / "quota.bin"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_the_ledger_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name a file in it"), kept(tmp_path):
        pass


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOLCK, "its file system keeps no locks; choose a folder on a disk of this machine"),
        (errno.EIO, "Input/output error; mend that, or name another place"),
    ],
)
def test_a_lock_that_can_not_be_had_is_not_said_to_be_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:  # fmt: skip
    def refuse(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=f"quota.bin.lock beside it can't be locked: .*{says}"), kept(tmp_path / "quota.bin"):
        pass


async def test_new_quotas_with_a_mistake_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    quotas = governing(config(None))
    assert not quotas.configure(config(None, few={**FEW, "limits": {"requsts": 5}}))
    assert "the new quotas have a mistake; replicas and quotas of before hold" in caplog.text
    assert quotas.configure(config(None, few=FEW))
    assert quotas.governor.state.targets["few"].scopes["requests"].limit == 3
    quotas.configure(config(None, other=FEW))
    assert set(quotas.governor.state.targets) == {"other"}
