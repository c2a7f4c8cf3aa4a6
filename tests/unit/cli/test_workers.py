"""What does a worker get of the configuration, and how are its logs told from those of the others?"""

import logging
from pathlib import Path

import orjson
import pytest

from luftpause.cli.workers import of_worker
from luftpause.dataplane.room import usual_bytes_max
from luftpause.dataplane.workers import Worker
from luftpause.kit import logs
from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError


def a_worker(number: int, count: int = 4) -> Worker:
    return Worker(number, count, Path("/nowhere"))


def test_each_has_a_name_of_its_own_the_same_port_and_its_part_of_the_memory() -> None:
    config = Config.model_validate({"dataplane": {"name": "edge", "port": 0, "usage": "ask"}})
    found = [of_worker(config, a_worker(number), 8080).dataplane for number in (0, 3)]
    assert [(each.name, each.port, each.usage) for each in found] == [("edge-0", 8080, "ask"), ("edge-3", 8080, "ask")]
    assert [each.held_bytes_max for each in found] == [usual_bytes_max() // 4] * 2


def test_a_memory_that_was_given_is_each_workers() -> None:
    config = Config.model_validate({"dataplane": {"held_bytes_max": 1000}})
    assert of_worker(config, a_worker(1), 8080).dataplane.held_bytes_max == 1000


def test_a_name_that_has_no_room_for_the_number_is_told() -> None:
    config = Config.model_validate({"dataplane": {"name": "d" * 64}})
    with pytest.raises(ConfigError, match=r"dataplane\.name 'd+': with a worker's number at its end"):
        of_worker(config, a_worker(0), 8080)


def test_others_are_those_that_have_said_where_they_listen(tmp_path: Path) -> None:
    worker = Worker(1, 4, tmp_path)
    (tmp_path / "worker-0.json").write_text('{"http": "http://h:1", "own": "http://h:2"}')
    (tmp_path / "worker-1.json").write_text('{"http": "http://h:1", "own": "http://h:3"}')
    (tmp_path / "worker-2.json").write_text('{"ht')
    assert worker.others() == {0: "http://h:2"}


@pytest.mark.parametrize(("worker", "shown"), [(None, None), (0, 0), (3, 3)])
def test_a_workers_log_lines_have_its_number(worker: int | None, shown: int | None) -> None:
    record = logging.LogRecord("luftpause.dataplane", logging.INFO, "", 0, "listening", (), None)
    line = orjson.loads(logs._Json(worker).format(record))
    assert line.get("worker") == shown
    human = logs._Human(worker).format(record)
    assert ("dataplane: listening" if worker is None else f"dataplane-{worker}: listening") in human
