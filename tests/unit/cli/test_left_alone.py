"""With which status does a command end whose output nobody reads any more?"""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_who_has_left_changes_no_exit_status(closed: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: writes}
    program = (
        "import sys; from luftpause.__main__ import main; sys.argv[1:] = ['--version']; print('a word', file=sys.stderr, end=''); main()"
    )
    try:
        ended = subprocess.run([sys.executable, "-c", program], env=env, timeout=60, check=False, **streams)
    finally:
        os.close(writes)
    assert ended.returncode == 0
