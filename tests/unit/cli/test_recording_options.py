"""Do --record and --record-clear reach the scheduler's configuration?"""

from pathlib import Path

from luftpause.cli.stack import with_recording
from luftpause.kit.config import Config, SchedulerConfig


def test_a_directory_given_on_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = Config(scheduler=SchedulerConfig(record=tmp_path / "file", record_clear=True))
    assert with_recording(config, tmp_path / "line", clear=False).scheduler.record == tmp_path / "line"
    assert with_recording(config, None, clear=False).scheduler == config.scheduler


def test_names_are_hashed_unless_asked_otherwise(tmp_path: Path) -> None:
    assert not with_recording(Config(), tmp_path, clear=False).scheduler.record_clear
    assert with_recording(Config(), tmp_path, clear=True).scheduler.record_clear


def test_a_relative_directory_is_the_callers_not_that_of_the_started_service() -> None:
    assert with_recording(Config(), Path("logs"), clear=False).scheduler.record == Path.cwd() / "logs"
