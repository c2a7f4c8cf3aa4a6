"""Is a damaged line always found out?"""

import pytest

from luftpause.runtime.core.events import CallEnded, Created
from luftpause.runtime.journal_lines import Damaged, Entry, decode, encode
from luftpause.runtime.ports import ServiceClass

EVENT = CallEnded("call_0", 'said "x" in "run":"run_other" — 😀\n', failed=True)
LINE = encode("run_1", 3, EVENT)


def test_a_line_reads_back() -> None:
    assert LINE.endswith(b"}\n")
    assert LINE.count(b"\n") == 1
    assert decode(LINE[:-1]) == Entry("run_1", 3, EVENT)
    created = Created("run_1", 1.5, "t", "m", ServiceClass.BATCH, "", 8, 0, tools=("a", "b*"), parent="run_0", owner="me")
    assert decode(encode("run_1", 0, created)[:-1]) == Entry("run_1", 0, created)


def test_every_changed_byte_is_found() -> None:
    for at in range(len(LINE) - 1):
        for flip in (1, 0x20, 0x80):
            damaged = bytearray(LINE[:-1])
            damaged[at] ^= flip
            assert isinstance(decode(bytes(damaged)), Damaged), f"byte {at} ^ {flip}"


def test_every_shortened_line_is_found() -> None:
    for end in range(len(LINE) - 1):
        assert isinstance(decode(LINE[:end]), Damaged)


def test_a_damaged_line_still_says_whose_it_is() -> None:
    assert decode(LINE[:-20]) == Damaged("its checksum is wrong", ("run_1",))
    assert decode(LINE[:-1] + LINE[:-1]) == Damaged("its checksum is wrong", ("run_1", "run_1"))
    assert decode(b"\0" * 100) == Damaged("its checksum is wrong")


def test_members_that_a_later_version_added_are_ignored() -> None:
    line = _signed(b'{"v":1,"run":"run_1","seq":3,"mood":"fine","event":{"type":"call_ended","id":"a","text":"b","took":5}')
    assert decode(line) == Entry("run_1", 3, CallEnded("a", "b"))


@pytest.mark.parametrize("event", [b'{"type":"approval_asked"}', b'{"type":"call_ended"}', b"3"])
def test_an_event_that_this_version_does_not_know_is_damage(event: bytes) -> None:
    found = decode(_signed(b'{"v":1,"run":"run_1","seq":3,"event":%s' % event))
    assert isinstance(found, Damaged)
    assert found.runs == ("run_1",)
    assert not found.newer


def test_a_newer_format_is_not_taken_for_damage() -> None:
    found = decode(_signed(b'{"v":2,"run":"run_1","seq":3,"event":{"type":"call_ended","id":"a","text":"b"}'))
    assert isinstance(found, Damaged)
    assert found.newer


def _signed(body: bytes) -> bytes:
    import zlib

    return b'%s,"crc":%d}' % (body, zlib.crc32(body))
