"""Do two processes of one machine agree on how long it has been up, and who reads the calendar?"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import luftpause
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


CALENDAR = re.compile(r"\btime\.time(?:_ns)?\b|datetime\.now|utcnow")
WHY = {
    "dataplane/api.py": "when a model was made known, for clients to see",
    "kit/tracing.py": "moments of spans",
    "runtime/model_client.py": "a date in Retry-After",
    "runtime/runs.py": "the journal's moments, which outlive a boot",
    "scheduler/governor/ledger_file.py": "how long nobody kept the ledger, where the machine has booted since",
    "scheduler/governor/local.py": "moments in headers of a provider that tells no Date",
    "scheduler/quota_desk.py": "the same, of turns",
    "scheduler/record.py": "names of files",
    "scheduler/traces.py": "moments of spans",
}


def test_services_read_the_calendar_where_somebody_else_reads_it_and_nowhere_else() -> None:
    """All ages and times to wait are on a clock that nobody sets."""
    root = Path(luftpause.__file__).parent
    files = [path for folder in ("dataplane", "kit", "runtime", "scheduler", "client") for path in (root / folder).rglob("*.py")]
    found = {str(path.relative_to(root)) for path in files if not path.stem.endswith("_pb2") and CALENDAR.search(path.read_text())}
    assert found == set(WHY)
