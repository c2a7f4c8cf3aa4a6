"""What do processes take of a Linux machine, as /proc tells it?"""

from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """On a core, of all threads of a process and of all that descend from it: waiting for a core does not count."""
    return sum(_cpu_seconds(each) for each in family(pid))


def memory_bytes(pid: int) -> int:
    """Of a process and all that descend from it, what is their own: shared libraries don't count twice."""
    return sum(_memory_bytes(each) for each in family(pid))


def processor_seconds() -> tuple[float, float]:
    """Of all processors of the machine: what was used, and all there was; zeros where nobody tells."""
    try:
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0, 0.0
    idle = numbers[3] + numbers[4]
    return float(sum(numbers) - idle), float(sum(numbers))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for each in found:
        for task in _tasks(each):
            try:
                found += [int(kid) for kid in (task / "children").read_text().split()]
            except OSError:
                continue
    return found


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    total = 0
    for task in _tasks(pid):
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            continue
    return total / 1e9


def _memory_bytes(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("Private_Clean:", "Private_Dirty:")))
