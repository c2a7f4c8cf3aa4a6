"""Is what a replica serves found out from the ways in which servers say no?"""

import pytest

from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.engine_http import Answer
from luftpause.scheduler.formats import AGAIN_SECONDS, PATHS, Formats, Served

ALL = tuple(PATHS)


class Server:
    """Answers by method and path; with a clock that each question moves on."""

    def __init__(self, statuses: dict[str, int | tuple[int, int]], other: tuple[int, int], took: float = 0.0) -> None:
        self.asked: list[str] = []
        self.now = 0.0
        self._statuses = statuses
        self._other = other
        self._took = took

    async def ask(self, method: str, path: str, seconds: float) -> Answer:
        assert seconds > 0
        self.asked.append(f"{method} {path}")
        self.now += self._took
        pair = self._statuses.get(path, self._other)
        get, post = pair if isinstance(pair, tuple) else (pair, pair)
        status = get if method == "GET" else post
        return Answer(ProbeOutcome.OK, status) if status else Answer(ProbeOutcome.MISSED, problem="no answer within 1 s")

    def formats(self, kind: str = "generative") -> Formats:
        return Formats(kind, self.ask, lambda: self.now)


POSTS = {name: PATHS[name] for name in ("chat", "completions", "responses", "messages")}


@pytest.mark.parametrize(
    ("statuses", "other", "apis"),
    [
        pytest.param(dict.fromkeys(POSTS.values(), (405, 400)), (404, 404), tuple(POSTS), id="vLLM, SGLang: a path for POST only"),
        pytest.param({PATHS["embeddings"]: (404, 501)}, (404, 400), tuple(POSTS), id="llama.cpp"),
        pytest.param({PATHS["chat"]: (405, 0), PATHS["completions"]: (405, 0)}, (404, 404), ("chat", "completions"), id="an older vLLM"),
        pytest.param({PATHS["chat"]: (404, 422), PATHS["embeddings"]: (404, 415)}, (404, 405), ("chat", "embeddings"), id="other refusals"),
        pytest.param({PATHS["chat"]: (200, 400)}, (200, 404), ("chat",), id="a page for every GET"),
        pytest.param({PATHS["messages"]: (404, 404)}, (404, 401), tuple(n for n in ALL if n != "messages"), id="no key: counts as served"),
        pytest.param({PATHS["chat"]: 405}, (0, 0), ALL, id="no answer: counts as served"),
        pytest.param({}, (401, 401), None, id="nothing known"),
        pytest.param({}, (503, 503), None, id="loading"),
        pytest.param({}, (307, 307), None, id="redirects"),
        pytest.param({PATHS["embeddings"]: 405}, (404, 404), ("embeddings",), id="embeddings only"),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_left_out(statuses: dict[str, int | tuple[int, int]], other: tuple[int, int], apis: tuple[str, ...]):
    assert await Server(statuses, other).formats().find(1) == Served(apis)


async def test_a_replica_that_has_none_of_them_is_complained_of_and_not_ruled_out():
    served = await Server({}, (404, 404)).formats().find(1)
    assert served.apis is None
    assert "/v1/chat/completions" in served.problem


async def test_a_path_for_post_only_is_never_posted_to():
    server = Server({}, (405, 500))
    assert (await server.formats().find(1)).apis == ALL
    assert server.asked == [f"GET {path}" for path in PATHS.values()]


async def test_a_classifier_is_asked_for_its_own_path_only():
    server = Server({"/classify": 405}, (404, 404))
    assert await server.formats("classifier").find(1) == Served(("classify",))
    assert server.asked == ["GET /classify"]
    assert "/classify" in (await Server({}, (404, 404)).formats("classifier").find(1)).problem


async def test_it_is_asked_once_and_again_when_the_replica_was_away_or_something_is_open():
    server = Server({PATHS["chat"]: 405}, (404, 404))
    formats = server.formats()
    assert formats.due
    await formats.find(1)
    server.now += 1e6
    assert not formats.due
    formats.anew()
    assert formats.due

    server = Server({PATHS["chat"]: 0}, (405, 405))
    formats = server.formats()
    await formats.find(1)
    assert not formats.due
    server.now += AGAIN_SECONDS
    assert formats.due


async def test_slow_answers_take_no_longer_than_they_may():
    server = Server({}, (404, 404), took=0.6)
    served = await server.formats().find(1)
    assert server.asked == ["GET /v1/chat/completions", "POST /v1/chat/completions"]
    assert served.apis == tuple(name for name in ALL if name != "chat")


async def test_whoever_says_nothing_to_a_get_is_sent_nothing_more_for_it_and_no_question_has_more_time_than_all():
    server = Server({PATHS["chat"]: (0, 404)}, (405, 405))
    assert await server.formats().find(1) == Served(ALL)
    assert server.asked == [f"GET {path}" for path in PATHS.values()]
    late = Server({}, (404, 404), took=1.0)
    assert await late.formats().find(1) == Served(None)
    assert late.asked == ["GET /v1/chat/completions"]
