"""Is a field put into a body without touching the others?"""

import json

import pytest

from luftpause.dataplane import splice
from luftpause.dataplane.splice import with_priority

OWN = b',"priority":-1'


def names(body: bytes) -> list[str]:
    found: list[str] = []
    json.loads(body, object_pairs_hook=lambda pairs: found.extend(name for name, _ in pairs))
    return found


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m"}',
        b' {\n "model" : "m", "x": [1.0, 1e5, {"a" : "}"}] } \r\n\t',
        b'{"model":"m","tools":[{"parameters":{"properties":{"priority": {"type":"integer"}}}}]}',
        rb'{"model":"m","messages":[{"content":"\"priority\": 9}"}]}',
        b'{"Priority":5,"model":"m"}',
    ],
)
def test_a_body_that_says_none_gets_one_and_keeps_every_byte(body: bytes) -> None:
    changed = with_priority(body, -1)
    assert json.loads(changed) == json.loads(body) | {"priority": -1}
    assert changed.replace(OWN, b"") == body


@pytest.mark.parametrize("own", [b"9", b"-3", b"null", b'"high"', b"[1]", b'{"a": 1}'])
@pytest.mark.parametrize("form", [b'{"priority":%b,"model": "m", "x": 1.0}', b'{ "model": "m" , "x": 1.0,\n "priority" : %b }\n'])
def test_a_clients_own_priority_makes_way(own: bytes, form: bytes) -> None:
    changed = with_priority(form % own, 1)
    assert json.loads(changed) == {"model": "m", "x": 1.0, "priority": 1}
    assert names(changed).count("priority") == 1
    assert b"1.0" in changed  # as the client wrote it, not as a decoder would


def test_names_and_values_of_a_body_that_is_put_together_anew_mean_the_same() -> None:
    body = rb'{"mod\u0065l":"m","\u00e9\"":1,"n":123456789012345678901234567890,"x":"\ud83d\ude00 \/","priority":7,"priority":8}'
    changed = with_priority(body, 0)
    assert json.loads(changed) == json.loads(body) | {"priority": 0}
    assert rb'"x":"\ud83d\ude00 \/"' in changed
    assert names(changed).count("priority") == 1


def test_what_cant_be_taken_apart_says_ours_last() -> None:
    """A lone half of a surrogate pair: engines read it, the decoder does not."""
    body = rb'{"model":"m","priority":7,"x":"\ud83d"}'
    assert with_priority(body, -1) == body[:-1] + OWN + b"}"


def test_a_body_of_endless_members_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "MEMBERS_MAX", 3)
    few, many = b'{"model":"m","priority":7,"a":1}', b'{"model":"m","priority":7,"a":1,"b":2}'
    assert with_priority(few, 0) == b'{"model":"m","a":1,"priority":0}'
    assert with_priority(many, 0) == many[:-1] + b',"priority":0}'
