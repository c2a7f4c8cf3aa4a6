"""What do the headers of a request say about its turn?"""

import pytest

from luftpause.dataplane.identify import Identity, caller_of, identify
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import TurnClass

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Identity()),
        ({b"x-luftpause-run-id": b"r"}, Identity(run="r")),
        ({b"x-luftpause-run-id": b"~" * 128}, Identity(run="~" * 128)),
        ({b"x-luftpause-class": b"BATCH"}, Identity(turn_class=TurnClass.BATCH)),
        ({b"x-luftpause-class": b"interactive"}, Identity()),
        ({b"x-luftpause-caller": "jürgen".encode()}, Identity(caller="jürgen")),
        ({b"x-luftpause-priority": b"2"}, Identity(priority=2)),
        ({b"traceparent": TRACE}, Identity(traceparent=TRACE.decode())),
        ({b"traceparent": b"00-0-0-0"}, Identity()),
        ({b"traceparent": TRACE.replace(b"b7ad6b7169203331", b"0000000000000000")}, Identity()),
        ({b"x-claude-code-session-id": b"s"}, Identity(run="s")),
        ({b"x-claude-code-session-id": b"s", b"x-claude-code-agent-id": b"a"}, Identity(run="s:a", parent="s")),
        (
            {b"x-claude-code-session-id": b"s", b"x-claude-code-agent-id": b"b", b"x-claude-code-parent-agent-id": b"a"},
            Identity(run="s:b", parent="s:a"),
        ),
        ({b"x-claude-code-agent-id": b"a"}, Identity()),
        ({b"session-id": b"codex"}, Identity(run="codex")),
        ({b"session-id": b"s", b"thread-id": b"s"}, Identity(run="s")),
        ({b"session-id": b"s", b"thread-id": b"not an id"}, Identity(run="s")),
        ({b"session-id": b"s", b"thread-id": b"t"}, Identity(run="t", parent="s")),
        ({b"session-id": b"s", b"thread-id": b"u", b"x-codex-parent-thread-id": b"t"}, Identity(run="u", parent="t")),
        ({b"thread-id": b"t"}, Identity()),
        ({b"x-session-id": b"opencode"}, Identity(run="opencode")),
        ({b"session-id": b"not an id"}, Identity()),
        ({b"session-id": b"x" * 129}, Identity()),
        ({b"x-luftpause-run-id": b"ours", b"session-id": b"theirs"}, Identity(run="ours")),
        ({b"x-luftpause-parent-run-id": b"above"}, Identity(parent="above")),
        (
            {b"x-luftpause-run-id": b"ours", b"x-claude-code-session-id": b"s", b"x-claude-code-agent-id": b"a"},
            Identity(run="ours", parent="s"),
        ),
    ],
)
def test_what_headers_say(headers: dict[bytes, bytes], expected: Identity) -> None:
    assert identify(headers) == expected


@pytest.mark.parametrize(
    ("name", "value", "code", "says"),
    [
        ("x-luftpause-run-id", b"", "bad_run_id", "1 to 128 visible ASCII"),
        ("x-luftpause-run-id", b"a b", "bad_run_id", "1 to 128 visible ASCII"),
        ("x-luftpause-run-id", b"x" * 129, "bad_run_id", "1 to 128 visible ASCII"),
        ("x-luftpause-run-id", "ü".encode(), "bad_run_id", "1 to 128 visible ASCII"),
        ("x-luftpause-parent-run-id", b"a b", "bad_run_id", "1 to 128 visible ASCII"),
        ("x-luftpause-class", b"fast", "bad_class", "interactive, batch, not 'fast'"),
        ("x-luftpause-class", b"", "bad_class", "interactive, batch"),
        ("x-luftpause-priority", b"3", "bad_priority", "0, 1 or 2"),
    ],
)
def test_a_bad_header_is_named_with_what_would_do(name: str, value: bytes, code: str, says: str) -> None:
    found = identify({name.encode(): value})
    assert isinstance(found, Rejection)
    assert (found.status, found.code) == (400, code)
    assert name in found.message
    assert says in found.message


@pytest.mark.parametrize(
    ("value", "caller"),
    [(b"x" * 200, "x" * 128), ("ü".encode() * 100, "ü" * 64), (b"x" + "ü".encode() * 100, "x" + "ü" * 63), (b"\xff\xfe", "ÿþ"), (b"", "")],
)
def test_a_long_caller_is_cut_at_a_character_and_never_an_error(value: bytes, caller: str) -> None:
    assert caller_of(value) == caller
    assert len(caller.encode()) <= 128


def test_a_principal_is_its_own_caller_whatever_the_headers_say() -> None:
    assert identify({}, "ann") == Identity(caller="ann", principal="ann")
    assert identify({b"x-luftpause-caller": b"ben", b"x-luftpause-run-id": b"r"}, "ann") == Identity(run="r", caller="ann", principal="ann")
