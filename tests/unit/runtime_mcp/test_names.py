"""Which names do the awkward tools of real servers get?"""

from luftpause.runtime.tools.names import engine_names


def named(*tools: tuple[str, str]) -> dict[tuple[str, str], str]:
    return dict(engine_names(tools))


def test_a_lone_tool_keeps_its_name_or_a_cleaned_one():
    assert named(("wiki", "lookup"), ("wiki", "page.get")) == {("wiki", "lookup"): "lookup", ("wiki", "page.get"): "page_get"}


def test_the_same_name_on_two_servers_gets_the_server_in_front():
    assert named(("a", "find"), ("b", "find"), ("b", "add")) == {("a", "find"): "a__find", ("b", "find"): "b__find", ("b", "add"): "add"}


def test_of_one_servers_look_alikes_the_one_that_is_spelled_so_keeps_the_name():
    names = named(("s", "a.b"), ("s", "a_b"), ("s", "a/b"))
    assert names["s", "a_b"] == "a_b"
    assert names["s", "a.b"].startswith("a_b_")
    assert names["s", "a/b"].startswith("a_b_")
    assert len(set(names.values())) == 3


def test_long_and_unspeakable_names_get_a_digest():
    names = named(("s", "t" * 70), ("s", "поиск"), ("s", "---"))
    assert len(names["s", "t" * 70]) == 64
    assert names["s", "поиск"].startswith("tool_")
    assert names["s", "---"] == "---"


def test_names_are_the_same_in_every_process():
    assert named(("s", "a.b"), ("s", "a/b")) == {("s", "a.b"): "a_b_2c8e9841", ("s", "a/b"): "a_b_f304ec70"}
