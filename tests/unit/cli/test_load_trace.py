"""Are traces read as they are meant, written so that they can be read again, and mistakes in them named?"""

from pathlib import Path

import pytest

from luftpause.cli.load_plan import Plan, Round
from luftpause.cli.load_report import Outcome, RoundRecord, RunRecord
from luftpause.cli.load_trace import COLUMNS, read, write, write_plans
from luftpause.kit.errors import LuftpauseError

HEAD = ",".join(COLUMNS)
PUBLIC = f"""{HEAD}
0,117,0,0,2318,200,300
0,117,1,2518,348,131,154.5
1,20,1,510,40,20,0
1,20,0,0,500,10,25
"""


def written(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_rows_are_put_together_by_session_in_the_order_of_arrival(tmp_path: Path) -> None:
    assert read(written(tmp_path, PUBLIC)) == (
        Plan("1", (Round(0, 500, 10, 25.0), Round(510, 40, 20, 0.0)), 20.0),
        Plan("0", (Round(0, 2318, 200, 300.0), Round(2518, 348, 131, 154.5)), 117.0),
    )


def test_without_arrival_times_all_arrive_at_the_begin(tmp_path: Path) -> None:
    text = "session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\na,0,12461,5875,124,182\n"
    assert read(written(tmp_path, text)) == (Plan("a", (Round(12461, 5875, 124, 182.0),)),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("session_id,round_idx\n0,0\n", "line 1: the columns prefix_len, input_len, output_len, tool_wait_after_ms are missing"),
        (f"{HEAD}\n0,0,0,0,x,1,0\n", "line 2: input_len 'x' is no number"),
        (f"{HEAD}\n0,0,0,0,1,1,0\n0,0,1,-1,1,1,0\n", "line 3: prefix_len '-1' must not be below 0"),
        (f"{HEAD}\n0,0,0,0,0,1,0\n", "line 2: prefix_len and input_len must be at least 0, and together at least 1"),
        (f"{HEAD}\n0,0,0,0,5,0,0\n", "line 2: output_len must be at least 1"),
        (f"{HEAD}\n0,0,0,0,5,1\n", "line 2: tool_wait_after_ms None is no number"),
        (f"{HEAD}\n0,0,0,0,5,1,1e99\n", "line 2: tool_wait_after_ms 1e+99 is no number of milliseconds"),
        (f"{HEAD}\n0,0,0,0,5,1,0\n0,0,0,0,5,1,0\n", "session 0 has two rows with the same round_idx"),
        (f"{HEAD}\n", "has no runs"),
    ],
)
def test_a_mistake_in_csv_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(LuftpauseError) as raised:
        read(written(tmp_path, text))
    assert complaint in raised.value.message
    assert "trace.csv" in raised.value.message


ROUND = '{"prefix_len":0,"input_len":5,"output_len":3}'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no json\n", "line 1: JSON is malformed"),
        (f'\n{{"session_id":"a","rounds":[{ROUND}]}}\n{{"session_id":"b"}}\n', "line 3: Object missing required field `rounds`"),
        ('{"session_id":"a","rounds":[]}\n', "line 1: the run has no rounds"),
        (f'{{"session_id":"a","class":"urgent","rounds":[{ROUND}]}}\n', "line 1: class 'urgent' is neither interactive nor batch"),
        (f'{{"session_id":"a","arrival_time":-1,"rounds":[{ROUND}]}}\n', "line 1: arrival_time -1.0 is no number of milliseconds"),
    ],
)
def test_a_mistake_in_jsonl_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(LuftpauseError) as raised:
        read(written(tmp_path, text, "trace.jsonl"))
    assert complaint in raised.value.message


def test_what_is_no_text_or_not_there_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with pytest.raises(LuftpauseError, match="can't be read: No such file"):
        read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LuftpauseError, match="is no text"):
        read(path)


def a_run(session: str, began: float) -> RunRecord:
    rounds = (RoundRecord(began, 2.0, 0.5, 1050, 250, 30, 1, 2.0), RoundRecord(began + 4, 1.0, None, 1140, 1080, 120))
    return RunRecord("batch", Outcome.COMPLETED, 5.0, 2, session_id=session, caller="me", began_s=began, prefix_len=250, rounds=rounds)


PLANNED = (Round(250, 800, 30, 2000.0), Round(1080, 60, 120))


def test_what_was_measured_can_be_replayed_from_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, [a_run("b", 3.0), a_run("a", 1.5), RunRecord("batch", Outcome.UNFINISHED, 1.0, 0)])
    assert read(path) == (Plan("a", PLANNED, 1500.0, "batch", "me"), Plan("b", PLANNED, 3000.0, "batch", "me"))
    assert '"first_token_s":0.5' in path.read_text()


def test_csv_has_the_public_columns_and_can_be_replayed_without_classes(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(path, [a_run("a", 1.5)])
    assert path.read_text().splitlines() == [HEAD, "a,1500,0,250,800,30,2000", "a,1500,1,1080,60,120,0"]
    assert read(path) == (Plan("a", PLANNED, 1500.0),)


def test_plans_can_be_written_as_they_are(tmp_path: Path) -> None:
    plans = (Plan("a", (Round(1, 2, 3, 4.0, 256),), 5.0, "interactive", "x"), Plan("b", (Round(0, 2, 3),), 6.0))
    write_plans(tmp_path / "plans.jsonl", plans)
    assert read(tmp_path / "plans.jsonl") == plans


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LuftpauseError, match="can't be written: No such file"):
        write(tmp_path / "no" / "trace.csv", [])
