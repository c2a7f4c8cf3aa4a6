"""Is a body that is no JSON object taken for an empty one?"""

import pytest

from luftpause.kit.json_object import json_object


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"null", b'"text"', b'{"a": 1', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_empty(body: bytes) -> None:
    assert json_object(body) == {}


def test_an_object_is_itself() -> None:
    assert json_object(b' {"error": {"code": 1}} ') == {"error": {"code": 1}}
