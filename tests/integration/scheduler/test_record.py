"""Does a real scheduler that is killed, stopped and started again leave logs that lead to the same decisions?"""

from pathlib import Path

from luftpause.scheduler.replay import replay
from tests.support.cluster import cluster


async def test_each_life_of_a_scheduler_has_a_log_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    async with cluster(tmp_path, engines=(("--speed", "20"),), planes=1, scheduler={"record": str(folder)}) as whole:
        body = {"model": "fake-1b", "messages": [{"role": "user", "content": "Say hello."}]}
        ask = {"json": body, "headers": {"x-luftpause-run-id": "my-run", "x-luftpause-caller": "my-caller"}}
        assert (await whole.http.post(f"{whole.url()}/chat/completions", **ask)).is_success
        whole.scheduler.terminate()
        assert await whole.scheduler.ended() == 0
        await whole.start_scheduler()
        assert (await whole.http.post(f"{whole.url()}/chat/completions", **ask)).is_success
    paths = sorted(folder.iterdir())
    found = []
    for path in paths:
        assert b"my-" not in path.read_bytes()
        with path.open("rb") as lines:
            found.append(replay(lines))
    assert len(found) == 2
    for each in found:
        assert each.different == 0
        assert each.events >= 3  # what is told without hurry, as the end of the turn, may come when the scheduler has stopped already
        assert each.decisions > 1
        assert each.end is not None
        assert each.end.end == "stop"
        assert len(each.state.runs) == 1
    assert found[0].header.seed != found[1].header.seed
    assert set(found[0].state.runs) != set(found[1].state.runs)  # another key, so that two logs can't be joined
