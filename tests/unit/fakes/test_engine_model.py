"""What does the engine model do with given requests, step by step?"""

import pytest

from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Finished, Output, Refused, Retracted, Segment, Started, Token

FAST = EngineParams(
    prefill_tokens_per_second=1000,
    prefill_step_seconds=0,
    decode_step_seconds=1,
    decode_sequence_seconds=0,
    decode_kv_token_seconds=0,
    chunk_tokens=100,
    kv_tokens=1000,
)


def params(**changes: object) -> EngineParams:
    values = {name: getattr(FAST, name) for name in EngineParams.__struct_fields__}
    return EngineParams(**{**values, **changes})


def asked(
    name: str, prompt: int = 50, answer: int = 3, *, key: int | None = None, priority: int = 0, most: int | None = None
) -> EngineRequest:
    number = int.from_bytes(name.encode(), "big") * 10 if key is None else key
    return EngineRequest(name, (Segment(number, prompt),), (Segment(number + 1, answer),), most, priority)


def until_idle(engine: Engine) -> list[Output]:
    outputs: list[Output] = []
    while (due := engine.next_event()) is not None:
        outputs += engine.advance(due)
    return outputs


def starts(outputs: list[Output]) -> list[str]:
    return [output.id for output in outputs if isinstance(output, Started)]


def test_a_request_takes_its_prefill_and_one_step_for_each_further_token() -> None:
    engine = Engine(FAST)
    assert engine.submit(10, asked("a")) == ()
    assert until_idle(engine) == [
        Started(10, "a", 0),
        Token(10.05, "a", 1),
        Token(11.05, "a", 2),
        Token(12.05, "a", 3),
        Finished(12.05, "a", 50, 0, 3),
    ]


def test_a_long_prompt_is_prefilled_in_chunks_and_decoding_waits_for_it() -> None:
    engine = Engine(params(kv_tokens=10_000))
    engine.submit(0, asked("short", 50, 2))
    engine.advance(0.05)
    engine.advance(0.5)
    engine.submit(0.5, asked("long", 250, 1))
    outputs = until_idle(engine)
    assert [(round(output.at, 3), output.id) for output in outputs if isinstance(output, Token)] == [(1.05, "short"), (1.3, "long")]
    assert engine.counters.steps == 2 + 3


def test_a_step_takes_longer_with_more_requests_and_more_memory_read() -> None:
    engine = Engine(params(decode_sequence_seconds=0.5, decode_kv_token_seconds=0.01))
    engine.submit(0, asked("a", 100, 2))
    engine.advance(0.1)
    assert engine.next_event() == pytest.approx(0.1 + 1 + 0.5 + 1.01)


def test_a_slower_neighbour_stretches_the_next_step() -> None:
    engine = Engine(FAST)
    engine.slowdown = 2.0
    engine.submit(0, asked("a"))
    engine.advance(0)
    assert engine.next_event() == pytest.approx(0.1)


def test_the_next_turn_of_a_conversation_finds_its_prefix_with_the_answer_but_its_last_token() -> None:
    engine = Engine(FAST)
    engine.submit(0, asked("a", 50, 10, key=7))
    until_idle(engine)
    follow_up = EngineRequest("b", (Segment(7, 50), Segment(8, 10), Segment(9, 20)), (Segment(99, 2),))
    now = 100.0
    engine.advance(now)
    engine.submit(now, follow_up)
    assert engine.advance(now) == [Started(now, "b", 59)]


def test_the_whole_prompt_is_never_taken_from_the_cache() -> None:
    engine = Engine(FAST)
    engine.submit(0, asked("a", key=7))
    until_idle(engine)
    engine.advance(100)
    engine.submit(100, EngineRequest("b", (Segment(7, 50),), (Segment(55, 2),)))
    assert engine.advance(100) == [Started(100, "b", 49)]


def test_what_two_requests_share_is_stored_once() -> None:
    engine = Engine(FAST)
    for name, own in (("a", 1), ("b", 2)):
        engine.submit(0, EngineRequest(name, (Segment(10, 40), Segment(own, 5)), (Segment(100 + own, 2),)))
    until_idle(engine)
    assert engine.kv_resident == 40 + 2 * (5 + 1)


def test_the_conversation_used_longest_ago_goes_first_and_its_end_before_its_beginning() -> None:
    engine = Engine(params(kv_tokens=160))
    for at, key in ((0, 10), (100, 20)):
        engine.advance(at)
        engine.submit(at, asked(f"run{key}", 50, 2, key=key))
        until_idle(engine)
    engine.advance(200)
    engine.submit(200, asked("new", 70, 2, key=30))
    until_idle(engine)
    assert engine.cached_tokens((Segment(20, 50),)) == 50
    assert 0 < engine.cached_tokens((Segment(10, 50),)) < 50


def test_a_conversation_that_is_used_again_outlives_one_that_is_not() -> None:
    engine = Engine(params(kv_tokens=160))
    for at, key in ((0, 10), (100, 20), (200, 10)):
        engine.advance(at)
        engine.submit(at, asked(f"run{at}", 50, 2, key=key))
        until_idle(engine)
    engine.advance(300)
    engine.submit(300, asked("new", 70, 2, key=30))
    until_idle(engine)
    assert engine.cached_tokens((Segment(10, 50), Segment(11, 2))) == 51
    assert engine.cached_tokens((Segment(20, 50),)) < 50


def test_the_shortest_answer_is_taken_back_and_is_first_in_the_queue_again() -> None:
    engine = Engine(params(kv_tokens=100, running_max=2, reserve_ratio=0, reserve_ratio_min=0, reserve_ratio_decay=0))
    engine.submit(0, asked("first", 25, 50, most=0))
    engine.submit(0, asked("short", 10, 1, most=0))
    engine.advance(0.035)
    engine.submit(0.035, asked("second", 5, 60, most=0))
    engine.submit(0.035, asked("third", 5, 2, most=0))
    outputs = until_idle(engine)
    assert [output.id for output in outputs if isinstance(output, Retracted)] == ["second"]
    assert starts(outputs) == ["second", "second", "third"]


def test_full_memory_takes_the_youngest_answer_back_and_it_ends_all_the_same() -> None:
    engine = Engine(params(kv_tokens=100, reserve_ratio=0, reserve_ratio_min=0))
    engine.submit(0, asked("a", 20, 70, most=0))
    engine.submit(0, asked("b", 20, 40, most=0))
    outputs = until_idle(engine)
    assert [output.id for output in outputs if isinstance(output, Retracted)] == ["b"]
    assert starts(outputs) == ["a", "b", "b"]
    assert [output.number for output in outputs if isinstance(output, Token) and output.id == "b"] == list(range(1, 41))
    assert engine.counters.retracted == 1


def test_admission_keeps_room_for_the_answers_that_are_allowed() -> None:
    engine = Engine(params(kv_tokens=200, reserve_ratio=1.0))
    engine.submit(0, asked("a", 50, 2, most=100))
    engine.submit(0, asked("b", 50, 2, most=100))
    engine.advance(0.05)
    assert engine.gauges().waiting == 1
    assert starts(until_idle(engine)) == ["b"]


@pytest.mark.parametrize(
    ("priority", "order"),
    [
        ("off", ["busy", "low", "high", "low again"]),
        ("sglang", ["busy", "high", "low", "low again"]),
        ("vllm", ["busy", "low", "low again", "high"]),
    ],
)
def test_the_queue_is_ordered_by_the_flavours_priority(priority: str, order: list[str]) -> None:
    engine = Engine(params(priority=priority, running_max=1))
    outputs: list[Output] = []
    for name, rank in (("busy", 0), ("low", 0), ("high", 5), ("low again", 0)):
        engine.submit(0, asked(name, priority=rank))
    outputs += until_idle(engine)
    assert starts(outputs) == order


def test_a_full_queue_refuses_and_an_idle_engine_with_no_queue_does_not() -> None:
    engine = Engine(params(running_max=1, waiting_max=0))
    assert engine.submit(0, asked("a")) == ()
    assert engine.submit(0, asked("b")) == (Refused(0, "b", "queue_full"),)
    outputs = until_idle(engine)
    assert engine.submit(outputs[-1].at, asked("c")) == ()


def test_with_sglangs_priority_a_full_queue_gives_up_its_last_entry_for_a_better_one() -> None:
    engine = Engine(params(priority="sglang", running_max=1, waiting_max=1))
    engine.submit(0, asked("busy"))
    engine.submit(0, asked("low"))
    assert engine.submit(0, asked("high", priority=1)) == (Refused(0, "low", "outranked"),)
    assert engine.submit(0, asked("equal", priority=1)) == (Refused(0, "equal", "queue_full"),)
    assert starts(until_idle(engine)) == ["busy", "high"]


def test_what_could_never_fit_is_refused_at_once() -> None:
    engine = Engine(params(kv_tokens=100))
    assert engine.submit(0, asked("a", 90, 11)) == (Refused(0, "a", "too_long"),)
    assert engine.submit(0, asked("b", 90, 10)) == ()
    assert isinstance(until_idle(engine)[-1], Finished)


def test_cancelling_frees_memory_and_place_at_once_whether_waiting_or_running() -> None:
    engine = Engine(params(running_max=1))
    engine.submit(0, asked("a", 50, 30))
    engine.submit(0, asked("b"))
    engine.advance(3.3)
    assert engine.cancel(3.3, "a")
    assert (engine.kv_used, engine.gauges().running) == (0, 0)
    assert engine.cancel(3.3, "b")
    assert engine.gauges().waiting == 0
    assert not engine.cancel(3.3, "a")
    assert until_idle(engine) == []


def test_a_request_cancelled_in_its_first_step_leaves_the_engine_working_for_the_next() -> None:
    engine = Engine(params(running_max=1))
    engine.submit(0, asked("a", 90, 30))
    engine.submit(0, asked("b", 10, 1))
    engine.advance(0.01)
    engine.cancel(0.01, "a")
    outputs = until_idle(engine)
    assert outputs[-1] == Finished(outputs[-1].at, "b", 10, 0, 1)


def test_misuse_is_told() -> None:
    engine = Engine(FAST)
    engine.submit(0, asked("a"))
    with pytest.raises(ValueError, match="in the engine already"):
        engine.submit(0, asked("a"))
    with pytest.raises(ValueError, match="call advance"):
        engine.submit(5, asked("b"))
    engine.advance(5)
    with pytest.raises(ValueError, match="call advance"):
        engine.cancel(4, "a")
    with pytest.raises(ValueError, match="at least one token"):
        engine.submit(5, EngineRequest("c", (), (Segment(1, 1),)))


def test_a_vllm_step_decodes_and_prefills_with_what_is_left_of_the_chunk() -> None:
    engine = Engine(params(family="vllm", kv_tokens=10_000))
    engine.submit(0, asked("a", 50, 3))
    engine.advance(1.05)
    engine.submit(1.05, asked("b", 120, 1))
    outputs = until_idle(engine)
    tokens = [(round(output.at, 3), output.id, output.number) for output in outputs if isinstance(output, Token)]
    # each step: 1 s to decode, and 1 ms for each prompt token: 99 beside the running one, then the last 21
    assert tokens == [(1.05 + 1.0, "a", 2), (round(2.05 + 1.099, 3), "a", 3), (round(3.149 + 1.021, 3), "b", 1)]


def test_vllm_admits_by_the_prompt_alone_and_preempts_the_newest_of_the_least_priority() -> None:
    engine = Engine(params(family="vllm", kv_tokens=100, priority="vllm", free_share=0.0))
    for name, priority in (("batch", 1), ("old", 0), ("new", 0)):
        engine.submit(0, asked(name, 30, 20, priority=priority, most=1000))
    outputs = until_idle(engine)
    assert starts(outputs)[:3] == ["batch", "old", "new"]
    assert [output.id for output in outputs if isinstance(output, Retracted)][:1] == ["batch"]
    assert sum(isinstance(output, Finished) for output in outputs) == 3


def test_a_prefix_is_found_by_whole_blocks() -> None:
    engine = Engine(params(block_tokens=16))
    engine.submit(0, asked("a", 50, 10, key=7))
    until_idle(engine)
    engine.advance(100)
    engine.submit(100, EngineRequest("b", (Segment(7, 50), Segment(8, 10), Segment(9, 20)), (Segment(99, 2),)))
    assert engine.advance(100) == [Started(100, "b", 48)]


def test_a_request_that_waits_does_not_keep_its_prefix_young() -> None:
    engine = Engine(params(kv_tokens=200, running_max=None, reserve_ratio=0, reserve_ratio_min=0))
    engine.submit(0, asked("a", 50, 2, key=10))
    until_idle(engine)
    engine.advance(100)
    engine.submit(100, asked("b", 50, 2, key=20))
    until_idle(engine)
    engine.advance(200)
    engine.submit(200, asked("large", 120, 30, key=30, most=0))
    engine.submit(200, EngineRequest("waits", (Segment(10, 50), Segment(40, 80)), (Segment(41, 2),), 0))
    engine.advance(202)
    assert engine.cached_tokens((Segment(20, 50),)) >= engine.cached_tokens((Segment(10, 50),))
