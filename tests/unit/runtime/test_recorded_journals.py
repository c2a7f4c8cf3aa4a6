"""Are journals that an earlier version wrote still understood? None of these files is ever changed; new formats add new files."""

from pathlib import Path

from luftpause.runtime.core.advance import advance
from luftpause.runtime.core.effects import StartCall
from luftpause.runtime.core.events import Resumed
from luftpause.runtime.core.view import Around, view
from luftpause.runtime.journal_load import load
from luftpause.runtime.ports import RunState, ServiceClass

JOURNALS = Path(__file__).parent / "journals"


def test_format_1() -> None:
    lines = (JOURNALS / "format-1.jsonl").read_bytes().splitlines()
    loaded = load((number, line) for number, line in enumerate(lines))
    assert (loaded.lost, loaded.damaged) == ({}, ())
    finished, refused, cancelled, hanging = loaded.runs.values()

    shown = view(finished, Around(seconds=0))
    assert (shown.state, shown.answer, shown.turns, shown.tool_calls, shown.failed_tool_calls) == (RunState.COMPLETED, "42 \ufffd", 4, 3, 1)
    assert (shown.prompt_tokens, shown.completion_tokens, shown.cached_tokens) == (40, 8, 16)
    assert (finished.created.owner, finished.created.caller, finished.created.tools) == ("principal", "me", ("lookup", "s*"))
    assert finished.created.service_class is ServiceClass.BATCH

    assert (refused.state, refused.text) == (RunState.FAILED, "turn 1 got no answer: context too long")
    assert (cancelled.state, cancelled.created.parent) == (RunState.CANCELLED, refused.handle)

    assert hanging.state is RunState.RUNNING
    step = advance(hanging, Resumed(0))
    assert [effect.name for effect in step.effects if isinstance(effect, StartCall)] == ["safe"]
    assert step.run.failed_tool_calls == 1
