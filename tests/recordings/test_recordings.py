"""Does the scheduler decide what the recorded logs say, in every process?"""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from luftpause.cli.replay_check import difference_text
from luftpause.scheduler.replay import Replayed, replay, rewritten

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))
SHOWN_MAX = 10
KINDS = {"Place", "Held", "Refuse", "Probe", "ReplicasChanged", "Forget", "EndRun", "Expire"}  # Located is asked for by the Responses API

HASHED_TWICE = """
import sys
from hashlib import blake2b
from pathlib import Path
from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.record_log import decided, start_state
from luftpause.scheduler.record_values import encode, to_bytes
from luftpause.scheduler.replay import Log
for name in sys.argv[1:]:
    digest = blake2b()
    with Path(name).open("rb") as lines:
        log = Log(lines)
        state = start_state(log.header)
        for entry in log:
            step = decide(state, entry.event)
            state = step.state
            digest.update(decided(step.decisions) + repr((step.wake_at, step.more)).encode())
    print(Path(name).name, entry.number, digest.hexdigest(), blake2b(to_bytes(encode(state))).hexdigest())
"""


def replayed(path: Path) -> Replayed:
    with path.open("rb") as lines:
        return replay(lines)


def rewrite(path: Path) -> None:
    with path.open("rb") as lines:
        anew = b"".join(rewritten(lines))
    path.write_bytes(anew)


def review(path: Path, found: Replayed) -> str:
    """What is decided otherwise, as a diff."""
    lines = [f"{path.name}: {found.different} of {found.events} events lead to other decisions; - recorded, + decided now:"]
    for each in found.differences[:SHOWN_MAX]:
        lines += ["", *difference_text(each, before=each is found.differences[0])]
    if found.different > SHOWN_MAX:
        lines.append(f"\nand {found.different - SHOWN_MAX} more")
    lines.append("\nif that is intended: pytest tests/recordings --rewrite, then review the diff of the logs")
    return "\n".join(lines)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_log_leads_to_the_recorded_decisions(path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        rewrite(path)
    found = replayed(path)
    if found.different:
        pytest.fail(review(path, found), pytrace=False)
    assert found.events > 50
    assert found.decisions > 20


def test_the_logs_are_broad_enough() -> None:
    kinds = {name for path in LOGS for line in path.read_bytes().splitlines()[1:] for name in _decided(line)}
    assert kinds >= KINDS
    events = {msgspec.json.decode(line).get("event") for path in LOGS for line in path.read_bytes().splitlines()[1:]}
    assert len(events - {None}) >= 17


def _decided(line: bytes) -> list[str]:
    return [name for each in msgspec.json.decode(line).get("decided", ()) for name in each]


def test_the_logs_of_the_real_session_name_nobody() -> None:
    for path in LOGS:
        if path.stem.startswith("session"):
            assert re.search(rb"caller-\d|run_[0-9A-Z]{26}|call_[0-9a-f]", path.read_bytes()) is None


def test_two_processes_with_different_hash_seeds_decide_the_same_bytes() -> None:
    """No decision may depend on the order of a hash map."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", HASHED_TWICE, *map(str, LOGS)]
    outputs = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=root, capture_output=True, check=True, text=True, timeout=60
        ).stdout
        for seed in ("1", "77")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == len(LOGS)


def test_a_changed_decision_shows_as_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "changed.jsonl"
    text = next(each for each in LOGS if each.stem == "closed_loop").read_bytes()
    path.write_bytes(text.replace(b'"replica":"a","turn_seq"', b'"replica":"b","turn_seq"', 1))
    found = replayed(path)
    assert found.different == 1
    shown = review(path, found)
    number = found.differences[0].number
    assert f"  > {number}  " in shown
    assert '    - {"Place":' in shown
    assert '"replica":"b"' in shown.split("    - ")[1].split("\n")[0]
    assert '"replica":"a"' in shown.split("    + ")[1].split("\n")[0]
    rewrite(path)
    assert replayed(path).different == 0
    assert path.read_bytes() == text
