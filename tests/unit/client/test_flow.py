"""In which order does a call go? With answers by hand and a clock of the test's own."""

from collections.abc import Callable
from math import inf
from typing import Any

import orjson
import pytest

from luftpause.client import words
from luftpause.client.flow import Answer, Doing, Done, End, Flow, Kept, Lost, Missing, Own, Pause, Raised, Send, Through, Unsent, flow
from luftpause.client.settings import Settings, asked_of, settings_of
from luftpause.client.words import Away, Lease, Mistaken, Question, Reply

LIMITED = Answer(429, [("Retry-After", "1")], "slow down", whole=True)
GOOD = Answer(200, [("content-type", "application/json"), ("x-ratelimit-remaining", "3")])


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def granted(fence: int = 1) -> Reply:
    return Reply(200, orjson.dumps({"lease": "n", "fence": fence, "expiresMs": 60_000, "level": 2}))


def not_now(retry_ms: int) -> Reply:
    return Reply(429, orjson.dumps({"error": {"message": "not now", "code": "quota", "reason": "blocked", "retryMs": retry_ms}}))


def judged(*, limited: bool, retry_ms: int | None = None) -> Reply:
    said: dict[str, Any] = {"settled": True, "limited": limited}
    return Reply(200, orjson.dumps(said | ({"retryMs": retry_ms} if retry_ms is not None else {})))


def settings(**more: Any) -> Settings:
    given: dict[str, Any] = {
        "url": "http://x", "token": "", "caller": None, "priority": None, "batch": False, "cost": None, "wait_seconds": None,
        "when_away": "wait",
    }  # fmt: skip
    return settings_of("github", **(given | more))


def play(
    answers: list[Done | Callable[[Clock], Done]], *, replayable: bool = True, pool: float | None = None, **more: Any
) -> tuple[list[Doing], End]:
    """What was done until it ended. A pause lets its time pass; a question that is answered by a function may take time."""
    given, clock = settings(**more), Clock()
    steps: Flow = flow(given, asked_of(given, "GET", {"timeout": {"pool": pool}}), "call", clock, replayable=replayable)
    doings: list[Doing] = []
    left = list(answers)
    done: Done = None
    while True:
        try:
            doing = steps.send(done)
        except StopIteration as stop:
            assert left == []
            return doings, stop.value
        doings.append(doing)
        if isinstance(doing, Pause):
            clock.now += doing.seconds
            done = None
        else:
            answer = left.pop(0)
            done = answer(clock) if callable(answer) else answer


def kinds(doings: list[Doing]) -> list[str]:
    return [doing.what if isinstance(doing, Question) else type(doing).__name__ for doing in doings]


def said(doing: Doing) -> dict[str, Any]:
    assert isinstance(doing, Question)
    return orjson.loads(doing.body)


def after(seconds: float, answer: Done) -> Callable[[Clock], Done]:
    def later(clock: Clock) -> Done:
        clock.now += seconds
        return answer

    return later


def test_a_good_answer_passes_and_is_settled_when_it_was_read() -> None:
    doings, end = play([granted(), GOOD])
    assert kinds(doings) == ["reserve", "Send"]
    assert end == Through(Lease("n", 1, 60.0, 2), {"x-ratelimit-remaining": "3"})
    assert said(doings[0]) == {"lease": "call.1", "waitMs": 50_000, "retry": False, "method": "GET"}


def test_one_question_waits_a_while_and_the_next_one_keeps_the_place() -> None:
    doings, end = play([after(50, not_now(500)), after(50, not_now(500)), granted(), GOOD])
    assert kinds(doings) == ["reserve", "reserve", "reserve", "Send"]
    assert {said(doing)["lease"] for doing in doings[:3]} == {"call.1"}
    assert isinstance(end, Through)


def test_an_answer_that_came_at_once_is_not_asked_for_again_at_once() -> None:
    doings, _ = play([not_now(500), granted(), GOOD])
    assert kinds(doings) == ["reserve", "Pause", "reserve", "Send"]
    assert doings[1] == Pause(0.5)


def test_the_time_of_the_call_is_the_time_of_all_its_waits() -> None:
    doings, end = play([after(5, not_now(200))], pool=5.0)
    assert said(doings[0])["waitMs"] == 5000
    assert end == Own(429, [("retry-after", "1"), ("retry-after-ms", "200")], not_now(200).body)


def test_a_refusal_is_sent_again_when_its_window_opens_and_the_time_allows() -> None:
    doings, end = play([granted(), LIMITED, judged(limited=True, retry_ms=9000), granted(2), GOOD], wait_seconds=30)
    assert kinds(doings) == ["reserve", "Send", "report", "reserve", "Send"]
    assert (said(doings[3])["lease"], said(doings[3])["retry"]) == ("call.2", True)
    assert said(doings[2]) == {"lease": "n", "fence": 1, "status": 429, "headers": {"retry-after": "1"}, "body": "slow down"}
    assert isinstance(end, Through)


@pytest.mark.parametrize(
    ("answer", "verdict", "replayable", "when"),
    [
        (LIMITED, judged(limited=True, retry_ms=31_000), True, [("retry-after", "31"), ("retry-after-ms", "31000")]),
        (LIMITED, judged(limited=True, retry_ms=1000), False, [("retry-after", "1"), ("retry-after-ms", "1000")]),
        (LIMITED, judged(limited=True), True, [("x-should-retry", "false")]),
        (LIMITED, judged(limited=False), True, None),
        (LIMITED, Away("gone"), True, None),
        (Answer(403, [], "long", whole=False), judged(limited=True, retry_ms=10), True, [("retry-after", "1"), ("retry-after-ms", "10")]),
    ],
)
def test_a_refusal_that_is_not_sent_again_is_the_callers(answer: Answer, verdict: Done, replayable: bool, when: Any) -> None:
    doings, end = play([granted(), answer, verdict], replayable=replayable, wait_seconds=30)
    assert kinds(doings) == ["reserve", "Send", "report"]
    assert end == Kept(when)


def test_the_last_of_four_refusals_is_the_callers() -> None:
    doings, end = play([granted(), LIMITED, judged(limited=True, retry_ms=10)] * 4)
    assert kinds(doings).count("Send") == 4
    assert end == Kept([("retry-after", "1"), ("retry-after-ms", "10")])


def test_no_quota_for_a_second_try_gives_the_providers_refusal() -> None:
    _, end = play([granted(), LIMITED, judged(limited=True, retry_ms=10), not_now(99_000)], wait_seconds=30)
    assert end == Kept([("retry-after", "99"), ("retry-after-ms", "99000"), ("x-should-retry", "false")])


def test_what_was_not_sent_is_given_back_and_what_was_lost_is_not() -> None:
    error = ConnectionError()
    doings, end = play([granted(), Unsent(error), Reply(200, b"{}")])
    assert (kinds(doings), end) == (["reserve", "Send", "release"], Raised(error))
    doings, end = play([granted(), Lost(error), Reply(200, b"{}")])
    assert (kinds(doings), end) == (["reserve", "Send", "report"], Raised(error))
    assert said(doings[2])["status"] is None


def test_the_limits_of_a_stream_are_told_at_its_beginning() -> None:
    stream = Answer(200, [("content-type", "text/event-stream; charset=utf-8"), ("x-ratelimit-remaining", "3")])
    doings, end = play([granted(), stream, Reply(200, b"{}")])
    assert (kinds(doings), end) == (["reserve", "Send", "observe"], Through(Lease("n", 1, 60.0, 2), {}))


def test_who_waits_for_luftpause_asks_each_second_until_the_time_is_over() -> None:
    doings, end = play([Away("down")] * 4, wait_seconds=2.5)
    assert kinds(doings) == ["reserve", "Pause", "reserve", "Pause", "reserve", "Pause", "reserve"]
    assert end == Missing(Away("down"))


def test_who_sends_anyway_does_so_at_once_and_tells_nobody() -> None:
    doings, end = play([Away("down"), LIMITED], when_away="send")
    assert (kinds(doings), end) == (["reserve", "Send"], Through(None, {}))
    assert doings[1] == Send(None)


def test_a_mistake_ends_it() -> None:
    wrong = Reply(404, b'{"error": {"message": "no target is called so", "code": "unknown_target"}}')
    doings, end = play([wrong])
    assert (kinds(doings), end) == (["reserve"], Missing(Mistaken("no target is called so")))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"lease": 1, "fence": 1}', b'{"lease": "a"}', b'{"lease": "a", "fence": "b"}', b"\xff"]
)
def test_an_answer_of_another_form_is_as_good_as_none(body: bytes) -> None:
    assert isinstance(words.reserved(Reply(200, body)), Away)
    assert words.verdict(Reply(200, body)) == words.Verdict()
    assert isinstance(words.heard(502, body), Away)


def test_a_full_queue_is_no_outage() -> None:
    full = Reply(503, b'{"error": {"message": "full", "code": "queue_full"}}')
    assert words.heard(503, full.body) == full
    assert isinstance(words.reserved(full), words.NotYet)
    assert words.NotYet(1.0, 503, full.body).retry_seconds < inf
