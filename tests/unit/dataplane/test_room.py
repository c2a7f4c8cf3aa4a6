"""Is what bodies take counted, limited and given back?"""

from pathlib import Path

import pytest

from luftpause.dataplane.room import BYTES_MAX, Room, usual_bytes_max

HALF_GIB = 2**29


def test_what_is_given_back_can_be_taken_again() -> None:
    room = Room(100)
    assert room.take(60, "a") is None
    refused = room.take(41, "b")
    assert refused is not None
    assert (refused.status, refused.code, refused.retry_after_s) == (503, "no_room", 2)
    assert "dataplane.held_bytes_max" in refused.message
    assert room.take(40, "b") is None
    room.give_back(60, "a")
    assert room.taken == 40
    assert room.take(60, "c") is None


def test_a_caller_has_a_limit_of_its_own() -> None:
    room = Room(100, per_caller_max=30)
    assert room.take(30, "a") is None
    refused = room.take(1, "a")
    assert refused is not None
    assert "held_bytes_per_caller_max" in refused.message
    assert room.take(30, "b") is None
    room.give_back(30, "a")
    assert room.take(30, "a") is None
    room.give_back(30, "b")
    room.give_back(10, "a")
    assert room.taken == 20
    assert room.lacks(10, "a") is None
    assert room.lacks(11, "a") is not None


def group(root: Path, lines: str, **limits: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("lines", "limits", "expected"),
    [
        ("0::/\n", {}, BYTES_MAX),
        ("0::/\n", {"memory_dot_max": "max"}, BYTES_MAX),
        ("0::/\n", {"memory_dot_max": str(2**30)}, HALF_GIB),
        ("0::/\n", {"memory_dot_max": str(2**40)}, BYTES_MAX),
        ("0::/a/b\n", {"a__b__memory_dot_max": "max", "a__memory_dot_max": str(2**30)}, HALF_GIB),
        ("5:cpu,memory:/x\n0::/\n", {"memory__memory_dot_limit_in_bytes": str(2**30)}, HALF_GIB),
        ("5:memory:/x\n", {"memory__x__memory_dot_limit_in_bytes": str(2**30)}, HALF_GIB),
    ],
)
def test_the_usual_limit_is_half_of_what_the_cgroup_may_have(tmp_path: Path, lines: str, limits: dict[str, str], expected: int) -> None:
    assert usual_bytes_max(group(tmp_path, lines, **limits)) == expected


def test_without_cgroups_it_is_4_gib(tmp_path: Path) -> None:
    assert usual_bytes_max(tmp_path) == 4 * 2**30
