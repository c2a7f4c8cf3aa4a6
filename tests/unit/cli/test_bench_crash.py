"""Does the crash test end well, and does it see what it is there to see?"""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause_bench.crash import run


def test_kills_and_power_cuts_break_no_promise() -> None:
    result = CliRunner().invoke(app, ["bench", "crash", "--kills", "4", "--runs", "12", "--json"], catch_exceptions=False)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["broken"]) == (0, [])
    assert report["kills"] == 4
    assert report["calls"] >= 2 * report["runs"]


def test_a_disk_that_forgets_what_was_synced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lies(journal: Path, *_: object) -> int:
        size = journal.stat().st_size if journal.exists() else 0
        if size:
            with journal.open("r+b") as file:
                file.truncate(size // 4)
        return size - size // 4

    def notices(seed: int, longer: int) -> bool:
        monkeypatch.setattr(run, "LIFE_SECONDS_MIN", longer * 0.25)
        report = asyncio.run(run.crash(kills=4, runs=12, seed=seed))
        return any("was made 2 times" in each for each in report.broken)

    monkeypatch.setattr(run, "_cut_power", lies)
    lives = (1, 1, 1, 2, 4, 8, 16, 32)  # on a busy machine a short one ends before it has begun
    assert any(notices(seed, longer) for seed, longer in enumerate(lives)), "what is lost depends on how far the runs have come by then"
