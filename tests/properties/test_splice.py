"""Whatever a client's body looks like: does the engine get all of it, and one priority, the scheduler's?"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.splice import with_priority

texts = st.one_of(
    st.sampled_from(["priority", "model", 'a"', "\\", "}", "é", "😀"]), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(texts, values, max_size=6).map(lambda found: {"model": "m"} | found)
spaces = st.sampled_from(["", " ", "\n", "\t \r\n"])
layouts = st.tuples(spaces, spaces, st.booleans(), st.sampled_from([None, 1]))


def written(body: dict[str, Any], layout: tuple[str, str, bool, int | None]) -> bytes:
    before, after, ascii_, indent = layout
    return (before + json.dumps(body, ensure_ascii=ascii_, indent=indent) + after).encode()


def members(body: bytes) -> list[str]:
    """Names of the outermost object, as often as they stand there: its pairs are the last that the decoder hands over."""
    found: list[list[str]] = []
    json.loads(body, object_pairs_hook=lambda pairs: found.append([name for name, _ in pairs]))
    return found[-1]


@given(body=bodies, layout=layouts, priority=st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=500)
def test_every_other_field_stays(body: dict[str, Any], layout: tuple[str, str, bool, int | None], priority: int) -> None:
    given_ = written(body, layout)
    changed = with_priority(given_, priority)
    assert json.loads(changed) == body | {"priority": priority}
    assert members(changed).count("priority") == 1
    if "priority" not in body:
        end = given_.rfind(b"}")
        assert changed == given_[:end] + b',"priority":%d' % priority + given_[end:]
