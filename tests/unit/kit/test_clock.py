"""Do two processes of one machine agree on how long it has been up?"""

import subprocess
import sys

import pytest

from luftpause.kit.clock import BOOT_ID, uptime

pytestmark = pytest.mark.skipif(not BOOT_ID.exists(), reason="only Linux names its boots")


def test_another_process_tells_the_same_boot_and_a_later_moment() -> None:
    boot, before = uptime()
    other = subprocess.run(
        [sys.executable, "-c", "from luftpause.kit.clock import uptime; print(*uptime())"], capture_output=True, text=True, check=True
    )
    named, seconds = other.stdout.split()
    _, after = uptime()
    assert named == boot != ""
    assert before < float(seconds) < after


def test_a_system_that_does_not_name_its_boots_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luftpause.kit.clock.BOOT_ID", BOOT_ID.with_name("no such file"))
    assert uptime() == ("", 0.0)
