"""Quota that a node has in advance: what is taken out of it, what is told, what goes back."""

from msgspec.structs import replace

from luftpause.scheduler.governor.store.chunks import Chunk, Chunks, chunk_of, starts_again
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.events import TargetConfigured
from luftpause.scheduler.quota.model import Mode, Settings, Target
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec

ONE = (("core", 1.0),)


def chunk(units: float = 10.0, until: float = 10.0) -> Chunk:
    return Chunk("c", 1, (("core", units),), granted=0.0, until=until)


def target(*scopes: ScopeSpec) -> Target:
    state = core.initial(Settings(), 0.0)
    return core.govern(state, TargetConfigured(0.0, TargetSpec("t", scopes))).state.targets["t"]


def test_calls_go_out_of_it_until_it_is_empty_or_over() -> None:
    one = chunk(units=2.0)
    assert [one.take(ONE, 1.0) for _ in range(3)] == [True, True, False]
    assert not chunk(until=5.0).take(ONE, 5.0)
    gone = chunk()
    gone.gone = True
    assert not gone.take(ONE, 1.0)
    assert not chunk().take((("tokens", 1.0),), 1.0)


def test_ends_are_parts_with_numbers_and_what_was_never_sent_can_be_taken_again() -> None:
    one = chunk(units=2.0)
    one.take(ONE, 1.0)
    one.take(ONE, 1.0)
    assert one.end(ONE) == 1
    one.put_back(ONE)
    assert not one.is_flying
    assert one.lent() == (("core", 1.0),)
    assert one.take(ONE, 2.0)
    assert one.end(ONE) == 2


def test_what_nobody_takes_goes_back_but_not_what_is_in_flight() -> None:
    one = chunk(units=5.0)
    one.take(ONE, 1.0)
    assert one.spare() == ((("core", 4.0),), 1)
    assert one.is_spent
    assert one.is_flying
    assert one.lent() == (("core", 1.0),)


def test_the_next_is_asked_for_at_thirty_percent() -> None:
    chunks = Chunks()
    assert chunks.is_low(ONE)
    chunks.add(chunk(units=10.0))
    for left in (9, 8, 7, 6, 5, 4):
        assert chunks.take(ONE, 1.0) is not None
        assert not chunks.is_low(ONE), left
    chunks.take(ONE, 1.0)
    assert chunks.is_low(ONE)
    assert chunks.unspent(1.0) == {"core": 3.0}
    assert chunks.unspent(10.0) == {}


def test_those_that_are_over_are_dropped_once_their_calls_have_ended() -> None:
    chunks = Chunks()
    one = chunk(units=1.0)
    chunks.add(one)
    chunks.take(ONE, 1.0)
    chunks.drop(20.0)
    assert len(chunks) == 1
    one.end(ONE)
    chunks.drop(20.0)
    assert len(chunks) == 0


def test_a_chunk_is_a_small_part_of_what_there_is() -> None:
    hourly = target(ScopeSpec("core", "fixed", 5_000, 3_600))
    assert chunk_of(hourly, ONE, 20, 2, 0.0) == (("core", 20.0),)
    assert chunk_of(hourly, (("core", 10.0),), 20, 2, 0.0) == (("core", 120.0),), "5 % of 5,000, by two nodes"
    assert chunk_of(hourly, ONE, 200, 5, 0.0) == (("core", 50.0),)
    late = replace(hourly, scopes={"core": replace(hourly.scopes["core"], reset_at=36.0)})
    assert chunk_of(late, ONE, 20, 2, 0.0) is None, "the window is nearly over"
    assert chunk_of(target(ScopeSpec("core", "fixed", 10, 60)), ONE, 20, 1, 0.0) is None
    assert chunk_of(target(ScopeSpec("core", "concurrent", 500, 60)), ONE, 20, 1, 0.0) is None
    assert chunk_of(hourly, (), 20, 1, 0.0) is None


def test_after_a_block_each_call_asks_for_itself() -> None:
    hourly = target(ScopeSpec("core", "fixed", 5_000, 3_600))
    assert not starts_again(hourly)
    assert starts_again(replace(hourly, breaker=replace(hourly.breaker, mode=Mode.HALF_OPEN)))
    assert starts_again(replace(hourly, breaker=replace(hourly.breaker, window=4.0)))
