"""Are the names that engines see allowed, distinct and a function of the set of tools alone?"""

import random

from hypothesis import example, given
from hypothesis import strategies as st

from luftpause.runtime.tools.names import ALLOWED, engine_names

servers = st.sampled_from(["a", "b", "a__b", "wiki.one", "x" * 64])
originals = st.one_of(
    st.sampled_from(["a.b", "a_b", "a/b", "a__b", "b", "b__c", "---", "поиск", "ask", "t" * 70, "t" * 64, "", " ", "a b", "b__a_b"]),
    st.text(max_size=70),
    st.text("ab_.", max_size=4),
)
tools = st.lists(st.tuples(servers, originals), max_size=30)


@given(tools)
@example([("a", "b__c"), ("a__b", "c"), ("b", "c")])
@example([("a", "x"), ("b", "x"), ("a__b", "a__x")])
def test_names_are_allowed_and_distinct(found: list[tuple[str, str]]):
    names = engine_names(found)
    assert names.keys() == set(found)
    assert len(set(names.values())) == len(names)
    assert all(ALLOWED.fullmatch(name) for name in names.values())


@given(tools, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_of_listing(found: list[tuple[str, str]], chance: random.Random):
    shuffled = [*found, *found[:3]]
    chance.shuffle(shuffled)
    assert engine_names(shuffled) == engine_names(found)


@given(tools)
def test_a_name_that_is_allowed_and_nobody_else_claims_is_kept(found: list[tuple[str, str]]):
    names = engine_names(found)
    for key, name in names.items():
        others = {original for server, original in names if (server, original) != key}
        if ALLOWED.fullmatch(key[1]) and key[1] not in others and not any(_cleaned(other) == key[1] for other in others):
            assert name == key[1]


def _cleaned(text: str) -> str:
    return "".join(character if ALLOWED.fullmatch(character) else "_" for character in text)
