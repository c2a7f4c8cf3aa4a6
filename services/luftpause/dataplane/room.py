"""How much memory may the bodies of requests take that are being read or have no answer yet?"""

from pathlib import Path, PurePosixPath
from typing import Final

from luftpause.dataplane.rejection import Rejection

BYTES_MAX: Final = 4 * 2**30  # where neither the configuration nor the cgroup says less
RETRY_SECONDS: Final = 2


class Room:
    """Counts what is held, in all and by caller (`per_caller_max` None: not by caller)."""

    __slots__ = ("_by_caller", "bytes_max", "per_caller_max", "taken")

    def __init__(self, bytes_max: int, per_caller_max: int | None = None) -> None:
        self.bytes_max = bytes_max
        self.per_caller_max = per_caller_max
        self.taken = 0
        self._by_caller: dict[str, int] = {}

    def lacks(self, count: int, caller: str) -> Rejection | None:
        """Why so many bytes more can't be held; None: they can."""
        if self.taken + count > self.bytes_max:
            return _full(f"hold {self.bytes_max} bytes in all (dataplane.held_bytes_max)")
        if self.per_caller_max is not None and self._by_caller.get(caller, 0) + count > self.per_caller_max:
            return _full(f"of this caller hold {self.per_caller_max} bytes (dataplane.held_bytes_per_caller_max)")
        return None

    def take(self, count: int, caller: str) -> Rejection | None:
        """Hold so many bytes more; if there is no room for them nothing changes."""
        if self.per_caller_max is None and self.taken + count <= self.bytes_max:
            self.taken += count
            return None
        rejection = self.lacks(count, caller)
        if rejection is None:
            self.taken += count
            self._by_caller[caller] = self._by_caller.get(caller, 0) + count
        return rejection

    def give_back(self, count: int, caller: str) -> None:
        self.taken -= count
        if self.per_caller_max is not None:
            left = self._by_caller[caller] - count
            if left:
                self._by_caller[caller] = left
            else:
                del self._by_caller[caller]


def _full(what: str) -> Rejection:
    message = f"the requests that wait here {what}, and there is no room for this body now; send it again later"
    return Rejection(503, "no_room", message, retry_after_s=RETRY_SECONDS)


def usual_bytes_max(root: Path = Path("/")) -> int:
    """4 GiB, or half of what the process's cgroup may have, if that is less."""
    return min([BYTES_MAX, *(limit // 2 for limit in _cgroup_limits(root))])


def _cgroup_limits(root: Path) -> list[int]:
    """The memory limits, in bytes, of the process's cgroup and of those around it; version 2, else version 1."""
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            found += _limits(mounted, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _limits(mounted / "memory", path, "memory.limit_in_bytes")
    return found


def _limits(mounted: Path, path: str, name: str) -> list[int]:
    """From the group up to the root; in a container its own group is mounted as the root."""
    inside = PurePosixPath(path.lstrip("/"))
    found: list[int] = []
    for group in (inside, *inside.parents):
        try:
            text = (mounted / group / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return found
