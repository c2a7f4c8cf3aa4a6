"""Is the persistent sorted set a set, sorted and persistent?"""

from hypothesis import given
from hypothesis import strategies as st

from luftpause.scheduler.core.sorted_set import WIDTH, SortedSet, sorted_set


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=1500))
def test_it_holds_what_a_set_holds_in_ascending_order(changes: list[tuple[bool, int]]) -> None:
    ours: SortedSet[int] = SortedSet()
    model: set[int] = set()
    for added, item in changes:
        ours = ours.add(item) if added else ours.remove(item)
        (model.add if added else model.discard)(item)
        assert len(ours) == len(model)
    assert list(ours) == sorted(model)
    assert all((item in ours) == (item in model) for item in range(400))
    if model:
        assert ours.first() == min(model)


def test_a_large_set_survives_growth_and_decay_in_any_order() -> None:
    size = WIDTH * WIDTH * 2 + 17
    for step in (1, size - 1, 7919):  # ascending, descending, scattered
        order = [number * step % size for number in range(size)]
        ours = sorted_set(order)
        assert list(ours) == sorted(set(order))
        kept = ours
        for item in order:
            ours = ours.remove(item)
        assert not ours
        assert list(kept) == sorted(set(order)), "an old version changed"


def test_adding_a_member_and_removing_a_stranger_return_the_same_object() -> None:
    ours = sorted_set([3, 1, 2])
    assert ours.add(2) is ours
    assert ours.remove(9) is ours


def test_sets_with_equal_items_are_equal_whatever_their_history() -> None:
    many = sorted_set(range(1000))
    for item in range(10, 1000):
        many = many.remove(item)
    assert many == sorted_set(reversed(range(10)))
    assert many != sorted_set(range(9))
