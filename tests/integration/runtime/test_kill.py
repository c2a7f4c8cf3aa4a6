"""Do runs survive kill -9 at any moment?"""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import orjson

from luftpause.runtime.core.events import Answered, CallEnded
from luftpause.runtime.journal_lines import Entry, decode

RUNS = 12
KILLS = 10


async def life(state: Path, calls: Path, kill_after: float | None) -> str:
    """One process, killed this long after it came up; returns its last line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.runtime.worker", str(state), str(calls), str(RUNS),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"up\n"
            if kill_after is None:
                return (await process.stdout.readline()).decode()
            await asyncio.sleep(kill_after)
            return ""
    finally:
        if process.returncode is None:
            process.kill()
        _, complaints = await process.communicate()
        assert not complaints, complaints.decode()


def results(state: Path) -> set[str]:
    """Calls whose result the journal holds, as the worker's log names them."""
    path = state / "runs.jsonl"
    names: dict[tuple[str, str], str] = {}
    found: set[str] = set()
    for line in path.read_bytes().splitlines() if path.exists() else ():
        entry = decode(line)
        if not isinstance(entry, Entry):
            continue  # torn by the kill
        match entry.event:
            case Answered(calls=asked):
                names.update({(entry.run, call.id): f"{call.name} {orjson.loads(call.arguments)['q']}" for call in asked})
            case CallEnded(id=call_id):
                found.add(names[entry.run, call_id])
            case _:
                pass
    return found


async def test_every_run_ends_no_result_is_asked_for_twice_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    state, calls = tmp_path / "state", tmp_path / "calls"
    calls.touch()
    for _ in range(KILLS):
        known, before = results(state), len(calls.read_text().splitlines())
        await life(state, calls, chance.uniform(0, 0.12))
        again = known & set(calls.read_text().splitlines()[before:])
        assert not again, f"made again although the journal had the result: {again}"
    word, _, views = (await life(state, calls, None)).partition(" ")
    assert word == "done"
    ended = orjson.loads(views)
    assert ended == {f"task {number}": ["Completed", f"answer of task {number}", 8] for number in range(RUNS)}
    made = Counter(calls.read_text().splitlines())
    assert {count for call, count in made.items() if call.startswith("pay")} == {1}
    assert len({call for call in made if call.startswith("look")}) == RUNS * 4
