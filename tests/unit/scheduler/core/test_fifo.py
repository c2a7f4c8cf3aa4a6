"""Is the persistent queue a queue, and persistent?"""

from hypothesis import given
from hypothesis import strategies as st

from luftpause.scheduler.core.fifo import CHUNK, Fifo, fifo


@given(st.lists(st.integers(-2 * CHUNK, 3 * CHUNK), max_size=40))
def test_it_holds_what_came_in_that_order_without_what_was_dropped(changes: list[int]) -> None:
    """A positive number: so many come; a negative one: so many of the oldest are dropped."""
    ours: Fifo[int] = Fifo()
    model: list[int] = []
    serial = 0
    for change in changes:
        before, was = ours, list(model)
        for _ in range(change):
            serial += 1
            ours = ours.append(serial)
            model.append(serial)
        if change < 0:
            ours = ours.without_first(-change)
            model = model[-change:]
        assert list(ours) == model
        assert (len(ours), bool(ours)) == (len(model), bool(model))
        assert list(before) == was, "an old version changed"
        assert list(fifo(model)) == model
    assert all(0 < len(chunk) <= CHUNK for queue in (ours, fifo(model)) for chunk in queue.full)
    assert list(fifo(model).append(0).without_first(1)) == [*model, 0][1:]
