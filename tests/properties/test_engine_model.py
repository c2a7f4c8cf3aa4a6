"""What holds for the engine model whatever is asked of it?"""

from hypothesis import given
from hypothesis import strategies as st

from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Finished, Refused, Segment, Started, Token

params = st.builds(
    EngineParams,
    chunk_tokens=st.sampled_from([16, 64, 2048]),
    running_max=st.sampled_from([None, 1, 3]),
    waiting_max=st.sampled_from([None, 0, 2]),
    kv_tokens=st.integers(60, 400),
    priority=st.sampled_from(["off", "sglang", "vllm"]),
    family=st.sampled_from(["sglang", "vllm"]),
    block_tokens=st.sampled_from([1, 16]),
)
# (seconds until it arrives, head shared with which others, own prompt tokens, answer tokens, tokens_max, priority, cancelled after)
asked = st.lists(
    st.tuples(
        st.floats(0, 0.05),
        st.integers(0, 2),
        st.integers(1, 60),
        st.integers(1, 40),
        st.sampled_from([None, 64]),
        st.integers(-2, 2),
        st.none() | st.floats(0, 0.3),
    ),
    min_size=1,
    max_size=12,
)


def request(index: int, head: int, own: int, answer: int, most: int | None, priority: int) -> EngineRequest:
    prompt = (Segment(head, 20 + head), Segment(1000 * (head + 1) + index % 4 * 100 + own, own))
    return EngineRequest(f"r{index}", prompt, (Segment(10_000 + index, answer),), most, priority)


def moments_of(asked: list) -> list[tuple[float, int, str, EngineRequest | None]]:
    """Arrivals, and cancellations as None, in order."""
    moments: list[tuple[float, int, str, EngineRequest | None]] = []
    at = 0.0
    for index, (wait, head, own, answer, most, priority, cancel) in enumerate(asked):
        at += wait
        each = request(index, head, own, answer, most, priority)
        moments.append((at, index, each.id, each))
        if cancel is not None:
            moments.append((at + cancel, 1000 + index, each.id, None))
    return sorted(moments, key=lambda moment: moment[:2])


def run(engine: Engine, asked: list) -> tuple[list, dict[str, EngineRequest], set[str]]:
    """Plays arrivals and cancellations in virtual time; checks memory after every event."""
    moments = moments_of(asked)
    outputs: list = []
    sent: dict[str, EngineRequest] = {}
    cancelled: set[str] = set()

    def forward(until: float | None) -> None:
        while (due := engine.next_event()) is not None and (until is None or due <= until):
            outputs.extend(engine.advance(due))
            check(engine)
        if until is not None:
            outputs.extend(engine.advance(until))

    for moment, _, name, each in moments:
        forward(moment)
        if each is None:
            before = engine.kv_used
            if engine.cancel(moment, name):
                cancelled.add(name)
                assert engine.kv_used <= before
        else:
            sent[name] = each
            outputs.extend(engine.submit(moment, each))
        check(engine)
    forward(None)
    return outputs, sent, cancelled


def check(engine: Engine) -> None:
    gauges = engine.gauges()
    assert 0 <= engine.kv_used <= engine.kv_resident
    # A hit ends with a whole block; the tokens of the next one, which are computed again, may be there twice.
    assert engine.kv_resident < engine.params.kv_tokens + engine.params.block_tokens
    assert engine.params.running_max is None or gauges.running <= engine.params.running_max
    assert gauges.kv_used + gauges.kv_cached == engine.kv_resident


@given(params, asked)
def test_every_request_ends_once_and_nothing_stays_in_memory(params: EngineParams, asked: list) -> None:
    engine = Engine(params)
    outputs, sent, cancelled = run(engine, asked)
    ended = [output.id for output in outputs if isinstance(output, Finished | Refused)] + sorted(cancelled)
    assert sorted(ended) == sorted(sent)
    assert engine.gauges().running == engine.gauges().waiting == engine.kv_used == 0


@given(params, asked)
def test_tokens_are_counted_up_and_none_is_lost(params: EngineParams, asked: list) -> None:
    engine = Engine(params)
    outputs, sent, cancelled = run(engine, asked)
    for finished in (output for output in outputs if isinstance(output, Finished)):
        numbers = [output.number for output in outputs if isinstance(output, Token) and output.id == finished.id]
        assert numbers == list(range(1, sent[finished.id].answer_tokens + 1))
        assert finished.prompt_tokens == sent[finished.id].prompt_tokens
        assert 0 <= finished.cached_tokens < finished.prompt_tokens
    counters = engine.counters
    assert counters.cached_tokens + counters.prefilled_tokens <= counters.prompt_tokens
    if not cancelled:
        assert counters.cached_tokens + counters.prefilled_tokens == counters.prompt_tokens
    assert counters.generated_tokens == sum(isinstance(output, Token) for output in outputs)


@given(params, asked)
def test_time_never_goes_back_and_two_runs_are_equal(params: EngineParams, asked: list) -> None:
    outputs, _, _ = run(Engine(params), asked)
    times = [output.at for output in outputs if not isinstance(output, Refused)]
    assert times == sorted(times)
    assert outputs == run(Engine(params), asked)[0]


@given(params, asked)
def test_requests_start_in_the_order_of_priority_and_then_arrival(params: EngineParams, asked: list) -> None:
    together = [(0.0, head, own, answer, most, priority, None) for _, head, own, answer, most, priority, _ in asked]
    outputs, sent, _ = run(Engine(params), together)
    first: dict[str, None] = {}
    for output in outputs:
        if isinstance(output, Started):
            first.setdefault(output.id)
    sign = {"off": 0, "sglang": -1, "vllm": 1}[params.priority]
    started = list(first)
    if not started:
        return
    rest = started[1:]  # the first one found the engine idle
    assert rest == sorted(rest, key=lambda name: (sign * sent[name].priority, int(name[1:])))


@given(params, asked)
def test_whoever_wants_only_first_tokens_gets_the_same_otherwise(params: EngineParams, asked: list) -> None:
    outputs, _, _ = run(Engine(params), asked)
    fewer, _, _ = run(Engine(params, each_token=False), asked)
    assert fewer == [output for output in outputs if not isinstance(output, Token) or output.number == 1]
