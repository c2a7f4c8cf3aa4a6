"""Do the replicas of a changed file count, once it has stopped changing and only if it is right?"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from luftpause.kit.config import Config
from luftpause.kit.config_file import load
from luftpause.kit.config_watch import Watcher, follow, hangups

A = "replicas:\n- {name: a, url: 'http://a'}\n"
AB = A + "- {name: b, url: 'http://b'}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "luftpause.yaml"
    path.write_text(A)
    return path


def watching(file: Path, environment: dict[str, str] | None = None) -> Watcher:
    """At rest: what it was started with has been looked at."""
    watcher = Watcher(file, load(file, environment or {}), environment or {})
    assert settled(watcher) is None
    return watcher


def settled(watcher: Watcher) -> Config | None:
    """The second look in a row sees the same."""
    first = watcher.look()
    return first or watcher.look()


def write(file: Path, text: str) -> None:
    file.write_text(text)


def names(config: Config | None) -> list[str] | None:
    return config and [replica.name for replica in config.replicas]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "luftpause.config"]


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="luftpause")


def test_a_file_that_stays_as_it_is_changes_nothing_and_says_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file)
    assert [watcher.look() for _ in range(5)] == [None] * 5
    file.write_text(file.read_text())
    assert settled(watcher) is None
    assert said(caplog) == []


def test_replicas_that_were_added_changed_and_removed_are_named(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file)
    file.write_text(AB)
    assert names(settled(watcher)) == ["a", "b"]
    file.write_text("replicas:\n- {name: c, url: 'http://c'}\n- {name: b, url: 'http://b', max_in_flight: 3}\n")
    assert names(settled(watcher)) == ["c", "b"]
    fields = [(record.fields["added"], record.fields["changed"], record.fields["removed"]) for record in caplog.records]
    assert fields == [(["b"], [], []), (["c"], ["b"], ["a"])]
    assert watcher.look() is None


def test_another_order_counts_as_a_change_because_the_first_is_preferred(file: Path) -> None:
    file.write_text(AB)
    watcher = watching(file)
    file.write_text("replicas:\n- {name: b, url: 'http://b'}\n- {name: a, url: 'http://a'}\n")
    assert names(settled(watcher)) == ["b", "a"]


def test_a_file_that_is_still_being_written_does_not_count(file: Path) -> None:
    watcher = watching(file)
    for count in range(1, 4):  # each half of it would be valid
        file.write_text("".join(f"- {{name: r{n}, url: 'http://r{n}'}}\n" for n in range(count)).join(["replicas:\n", ""]))
        assert watcher.look() is None
    assert names(watcher.look()) == ["r0", "r1", "r2"]


def test_a_file_that_changes_while_it_is_read_does_not_count_yet(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = watching(file)
    file.write_text(AB)

    def slow(path: Path, environment: object) -> Config:
        config = load(path, {})
        path.write_text(A + "- {name: c, url: 'http://c'}\n")
        return config

    monkeypatch.setattr("luftpause.kit.config_watch.load", slow)
    assert settled(watcher) is None
    monkeypatch.undo()
    assert names(settled(watcher)) == ["a", "c"]


def test_a_file_put_in_its_place_counts_also_where_size_and_time_are_the_same(file: Path) -> None:
    watcher = watching(file)
    other = file.with_suffix(".new")
    other.write_text(A.replace("name: a", "name: b"))
    was = file.stat()
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(file)
    assert names(settled(watcher)) == ["b"]


def test_a_link_that_points_elsewhere_counts(tmp_path: Path) -> None:
    """As Kubernetes changes a mounted ConfigMap."""
    for name, text in (("one", A), ("two", AB)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "luftpause.yaml").write_text(text)
    data, path = tmp_path / "..data", tmp_path / "luftpause.yaml"
    data.symlink_to("one")
    path.symlink_to("..data/luftpause.yaml")
    watcher = watching(path)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(data)
    assert names(settled(watcher)) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (A + "- {name: b, url: 'http://b', helth: /x}\n", "{file}:3: replicas[1].helth: unknown key; did you mean health?"),
        (A + "- {name: b\n", "{file}:4: not valid YAML"),
        ("replicas:\n- {name: a, url: '${NOT_SET}'}\n", "{file}:2: replicas[0].url: the environment variable NOT_SET is not set"),
        ("", "{file} names no replicas; write `replicas: []` to remove all"),
        ("log: {level: info}\n", "{file} names no replicas; write `replicas: []` to remove all"),
        (None, "{file}: can't be read: No such file or directory"),
    ],
)
def test_a_mistake_is_told_once_with_its_line_and_the_old_replicas_stay(
    file: Path, text: str | None, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = watching(file)
    file.unlink() if text is None else file.write_text(text)
    assert [watcher.look() for _ in range(5)] == [None] * 5
    (line,) = said(caplog)
    assert line.startswith("not taken, what was read before stays: " + mistake.format(file=file))
    file.write_text(AB)
    assert names(settled(watcher)) == ["a", "b"]


def test_all_replicas_can_be_removed_on_purpose(file: Path) -> None:
    watcher = watching(file)
    file.write_text("replicas: []\n")
    assert names(settled(watcher)) == []


def test_other_keys_are_named_as_needing_a_restart_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file)
    rest = "scheduler: {probe_seconds: 1, start_grace_seconds: 9}\nlog: {level: debug}\n"
    file.write_text(A + rest)
    assert settled(watcher) is None
    file.write_text(AB + rest)
    assert names(settled(watcher)) == ["a", "b"]
    (told,) = [record.fields["keys"] for record in caplog.records if "keys" in record.fields]
    assert told == ["scheduler.start_grace_seconds", "scheduler.probe_seconds", "log.level"]
    file.write_text(AB)
    settled(watcher)
    assert said(caplog)[-1] == "no key needs a restart any more"


def test_targets_of_quotas_count_without_a_restart_but_for_where_their_proxy_leads(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file)
    file.write_text(A + "governor: {targets: {github: {limits: {core: 15000}, profile: github}}}\n")
    taken = settled(watcher)
    assert taken is not None
    assert taken.governor.targets["github"].limits == {"core": 15000}
    assert said(caplog) == ["re-read; the targets of quotas have changed"]
    file.write_text(A + "governor: {targets: {github: {profile: github, proxy: 'http://a'}}}\n")
    assert settled(watcher) is not None
    assert [record.fields["keys"] for record in caplog.records if "keys" in record.fields] == [["governor.targets"]]


def test_no_value_of_the_file_is_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file, {"SECRET": "s3cret"})
    file.write_text(AB + "runtime:\n  servers:\n    t: {url: 'http://t', headers: {authorization: '${SECRET}'}}\n")
    assert settled(watcher) is not None
    assert "s3cret" not in caplog.text + str([record.fields for record in caplog.records])


def test_the_environment_still_overrides(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"LUFTPAUSE_SCHEDULER__PROBE_SECONDS": "7"}
    watcher = watching(file, environment)
    file.write_text(AB + "scheduler: {probe_seconds: 1}\n")
    assert settled(watcher).scheduler.probe_seconds == 7
    assert not [line for line in said(caplog) if "restart" in line or "anew" in line]


# ---- asked by a signal ------------------------------------------------------------------------------------------


def test_asked_it_reads_at_once_what_is_at_rest_and_says_so(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher = watching(file)
    assert watcher.look(asked=True) is None
    assert said(caplog) == ["re-read; the replicas are as before"]
    assert watcher.look() is None
    assert len(said(caplog)) == 1


def test_asked_in_the_middle_of_a_change_it_waits_until_the_file_is_at_rest(file: Path) -> None:
    watcher = watching(file)
    file.write_text(AB)
    assert watcher.look(asked=True) is None
    assert names(watcher.look()) == ["a", "b"]


async def test_following_hands_on_each_change_and_outlives_a_failure(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher, found, asked = watching(file), asyncio.Queue[Config](), asyncio.Event()

    def changed(config: Config) -> None:
        found.put_nowait(config)
        if len(config.replicas) == 2:
            raise ZeroDivisionError("by design")

    following = asyncio.create_task(follow(watcher, changed, asked=asked, poll_seconds=0.01))
    try:
        write(file, AB)
        assert names(await asyncio.wait_for(found.get(), 60)) == ["a", "b"]
        write(file, A)
        assert names(await asyncio.wait_for(found.get(), 60)) == ["a"]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert "the configuration file could not be looked at" in said(caplog)


async def test_following_looks_at_once_when_asked(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()
    following = asyncio.create_task(follow(watching(file), lambda _: None, asked=asked, poll_seconds=3600))
    try:
        async with asyncio.timeout(60):
            while "re-read; the replicas are as before" not in said(caplog):
                asked.set()
                await asyncio.sleep(0.01)  # polling a log
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_sighup_asks_and_is_left_to_others_afterwards() -> None:
    asked = asyncio.Event()
    with hangups(asked, lambda: pytest.fail("no terminal was closed")):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 60)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
