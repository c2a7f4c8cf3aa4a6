"""How much of its answers can a result hold, so that clients take it?

MCP's SDK for Python gives a call up whose event is longer than 1 MiB, Claude Desktop one whose result is longer than 1 MB: the answers of
all runs of an `await` would be lost, as often as it is asked. So the longest are cut, and say that they can be had alone.
"""

from collections.abc import Sequence
from typing import Final

import orjson
from msgspec.structs import replace

from luftpause.runtime.mcp_tools import views
from luftpause.runtime.ports import RunView

RESULT_BYTES_MAX: Final = 1_000_000
SMALL_BYTES: Final = 100_000
FEW: Final = 100
NOTE_BYTES: Final = 120
TWICE: Final = 2  # an answer stands in the JSON, and in the text beside it
ALONE: Final = "await this handle alone for more"
NO_LONGER: Final = "clients take no longer result"


def fitting(runs: Sequence[RunView]) -> tuple[RunView, ...]:
    """The runs; where their answers and errors are too long together, with the longest of them cut to the same length in bytes.

    All as they are, where there are too many runs for a result of that length: it is one for clients without a limit then.
    """
    sizes = [_size(_text(run)) for run in runs]
    if TWICE * sum(sizes) <= SMALL_BYTES and len(runs) <= FEW:
        return tuple(runs)
    room = (RESULT_BYTES_MAX - _bare(runs)) // TWICE
    if room <= 0 or sum(sizes) <= room:
        return tuple(runs)
    most, note = _most(sizes, room), ALONE if len(runs) > 1 else NO_LONGER
    return tuple(_cut(run, most, note) if size > most else run for run, size in zip(runs, sizes, strict=True))


def _bare(runs: Sequence[RunView]) -> int:
    """What the result takes without any answer, but with a note for each."""
    bare = [replace(run, answer=None, error=None) for run in runs]
    return len(orjson.dumps(views.runs_json(bare))) + _size(views.awaited_text(bare)) + TWICE * NOTE_BYTES * len(runs)


def _text(run: RunView) -> str:
    return run.answer or run.error or ""


def _size(text: str) -> int:
    """As JSON, in bytes."""
    return len(orjson.dumps(text))


def _most(sizes: Sequence[int], room: int) -> int:
    """The size that none may be above so that all have room; the small ones leave theirs to the others."""
    for index, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - index)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _cut(run: RunView, bytes_max: int, note: str) -> RunView:
    whole = text = _text(run)
    while text and (size := _size(text)) > bytes_max:
        text = text[: len(text) * bytes_max // size]
    cut = f"{text}\n[cut: {len(text):,} of {len(whole):,} characters shown; {note}]"
    return replace(run, answer=cut) if run.answer else replace(run, error=cut)
