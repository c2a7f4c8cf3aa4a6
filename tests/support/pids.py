"""Is a process that a test did not start itself still there?"""

import asyncio
import os
from pathlib import Path

import pytest


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits to be collected doesn't."""
    try:
        return _state_and_parent(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pids: set[int], seconds: float = 30) -> None:
    """Waits for the end of all; raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while any(alive(pid) for pid in pids):  # the end of another's child tells nobody
            await asyncio.sleep(0.02)


def descendants(pid: int) -> set[int]:
    """All running processes that it started, and theirs; skips the test where there is no /proc."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("which processes run is read from /proc, which only Linux has")
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and alive(int(entry.name)):
            try:
                parents[int(entry.name)] = _state_and_parent(int(entry.name))[1]
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid, os.getpid()}


def _state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)
