"""What does an examination find, and how is it told?"""

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

Level = Literal["ok", "note", "fault"]

MARKS: Final[dict[Level, str]] = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


class Finding(Struct, frozen=True):
    """`what` was looked at, what was `found`, and how to `mend` it (empty: nothing has to be)."""

    level: Level
    what: str
    found: str
    mend: str = ""


def ok(what: str, found: str) -> Finding:
    return Finding("ok", what, found)


def note(what: str, found: str, mend: str = "") -> Finding:
    """Right as it is, but somebody may wonder."""
    return Finding("note", what, found, mend)


def fault(what: str, found: str, mend: str) -> Finding:
    return Finding("fault", what, found, mend)


def text(findings: Iterable[Finding]) -> str:
    lines: list[str] = []
    for each in findings:
        lines.append(f"{MARKS[each.level]} {each.what}: {each.found}")
        if each.mend:
            lines.append(f"      → {each.mend}")
    return "\n".join(lines)


def in_all(findings: list[Finding]) -> str:
    """The last line."""
    faults = sum(each.level == "fault" for each in findings)
    notes = sum(each.level == "note" for each in findings)
    noted = f", {notes} note{'s' * (notes != 1)}" if notes else ""
    return f"{faults} fault{'s' * (faults != 1)}{noted}" if faults else f"nothing is wrong{noted}"
