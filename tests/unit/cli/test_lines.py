"""Is a service's JSON line readable, and every other line left as it is?"""

import io
import json

import pytest
from rich.console import Console

from luftpause.cli.lines import LinePrinter, readable


def test_a_json_line_becomes_time_event_and_fields() -> None:
    line = json.dumps({
        "time": "2026-01-02T03:04:05.678+00:00",
        "level": "warning",
        "service": "x",
        "event": "replica lost",
        "replica": "a",
        "n": 3,
    })
    level, text = readable(line)
    assert level == "warning"
    assert text.endswith(":05.678 replica lost  replica=a  n=3")


def test_an_exception_follows_its_line() -> None:
    _, text = readable(json.dumps({"time": "", "level": "error", "event": "broke", "exception": "Traceback\nValueError: x"}))
    assert text.split("\n") == [" broke", "Traceback", "ValueError: x"]


@pytest.mark.parametrize("line", ["plain text", "{torn", '{"no": "event of ours"}', "[1]", ""])
def test_any_other_line_stays_as_it_is(line: str) -> None:
    assert readable(line) == ("", line)


def test_printed_lines_carry_the_name_and_are_not_read_as_markup() -> None:
    out = io.StringIO()
    LinePrinter(Console(file=out, width=40))("engine-a", "a [bold]very[/] long line " + "x" * 60)
    assert out.getvalue() == "engine-a   │ a [bold]very[/] long line " + "x" * 60 + "\n"
