"""How is a sequence of bytes changed so that it is nearly HTTP, or nearly an event stream?"""

import re
from collections.abc import Callable, Sequence
from random import Random

BYTES_MAX = 16_384
AMPLIFIED_BYTES_MAX = 300_000

TOKENS = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b":", b" ", b"\t", b"\x00", b";", b",", b"\xff", b"\xc3", b"\x80", b"%00", b"?",
    b"://", b"@", b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"CONNECT ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b" HTTP/1.1",
    b" HTTP/1.0", b" HTTP/0.9", b" HTTP/2.0", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 X\r\n",
    b"HTTP/1.1 304 X\r\n", b"HTTP/1.1 101 X\r\n", b"HTTP/1.1 503 X\r\n", b"Host: localhost\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding:\tchunked \r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"chunked", b"identity", b"Connection: close\r\n",
    b"Connection: keep-alive, upgrade\r\n", b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"Expect: x\r\n",
    b"Origin: http://evil\r\n", b"Content-Encoding: gzip\r\n", b"Content-Type: text/event-stream\r\n",
    b"Content-Type: application/json\r\n", b"0\r\n\r\n", b"0\r\n", b"5\r\nhello\r\n", b'1;a="b"\r\nx\r\n', b"ffffffffffffffff\r\n",
    b"-1\r\n", b"+1\r\nx\r\n", b"0x1\r\nx\r\n", b"1_0\r\n", b" 1\r\nx\r\n", b"1 \r\nx\r\n", b"trailer: x\r\n", b"data: ", b"data:",
    b"data: [DONE]\n\n", b": ping\n\n", b"event: x\n", b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n', b'"usage":{', b'"choices":[]', b'"tool_calls":[{"id":"c1"}]',
    b'"finish_reason":"tool_calls"', b"\\ud83d", b"\\u0000", b'{"', b'"}', b"[[[[[[[[", b"null", b"1e999", b"-0", b"\xef\xbb\xbf",
    b"stream_options", b'"model":"m"', b'"model":7', b'"messages":[{}]',
]  # fmt: skip
NUMBERS = [
    b"0", b"1", b"-1", b"+1", b"00", b"0x10", b"1_0", b"1e3", b"7fffffffffffffff", b"ffffffffffffffff", b"10000000000000000", b"4294967296",
    b"18446744073709551615", b"18446744073709551616", b"9" * 40, b"",
]  # fmt: skip
NUMBER = re.compile(rb"[0-9]+")

Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]


def mutated(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """One to six changes, each of a random kind. At most AMPLIFIED_BYTES_MAX bytes."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        data = chance.choice(KINDS)(data, chance, corpus)
        if len(data) > BYTES_MAX:
            break
    if chance.random() < 0.005:
        data = amplified(data, chance)
    return data


def amplified(data: bytes, chance: Random) -> bytes:
    """A short piece, very often: what would take memory or time."""
    at, end = piece(data, chance, 200)
    if at == end:
        return data
    times = AMPLIFIED_BYTES_MAX // 2 // (end - at)
    return (data[:at] + data[at:end] * chance.randrange(1, times + 1) + data[end:])[:AMPLIFIED_BYTES_MAX]


def piece(data: bytes, chance: Random, bytes_max: int) -> tuple[int, int]:
    at = chance.randrange(len(data) + 1)
    return at, min(len(data), at + chance.randrange(1, bytes_max + 1))


def _one_byte(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _one_bit(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def _token(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    at, end = piece(data, chance, 12)
    if chance.random() < 0.6:
        end = at
    return data[:at] + chance.choice(TOKENS) + data[end:]


def _number(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    match = chance.choice(found)
    value = chance.choice(NUMBERS) if chance.random() < 0.5 else b"%d" % max(0, int(match[0][:18]) + chance.choice((-2, -1, 1, 2, 16)))
    return data[: match.start()] + value + data[match.end() :]


def _cut_out(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    at, end = piece(data, chance, chance.choice((2, 16, 200)))
    return data[:at] + data[end:]


def _twice(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    at, end = piece(data, chance, chance.choice((2, 16, 200)))
    return data[:end] + data[at:end] + data[end:]


def _lines(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """A line doubled, lost, or put elsewhere."""
    lines = data.split(b"\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(3):
        case 0:
            lines.insert(to, lines[at])
        case 1:
            lines[at], lines[to] = lines[to], lines[at]
        case _:
            del lines[at]
    return b"\n".join(lines)


def _line_ends(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    found = [at for at in range(len(data)) if data[at] == 10]
    if not found:
        return data
    at = chance.choice(found)
    start = at - 1 if at and data[at - 1] == 13 else at
    return data[:start] + chance.choice((b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n ", b"\r\n\t", b" \r\n", b"")) + data[at + 1 :]


def _case(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    at, end = piece(data, chance, 30)
    return data[:at] + data[at:end].swapcase() + data[end:]


def _spliced(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    other = chance.choice(corpus)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _one_more(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    return data + chance.choice(corpus)


KINDS: list[Mutation] = [
    _one_byte,
    _one_bit,
    _token,
    _token,
    _token,
    _number,
    _number,
    _cut_out,
    _twice,
    _lines,
    _line_ends,
    _case,
    _spliced,
    _one_more,
]


def smaller(data: bytes, fails: Callable[[bytes], bool], tries: int = 2_000) -> bytes:
    """The same fault with fewer bytes: pieces are taken out as long as it stays."""
    size = max(1, len(data) // 2)
    while tries > 0:
        at, took = 0, False
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data, took = shorter, True
            else:
                at += size
        if size == 1 and not took:
            break
        size = max(1, size // 2)
    return data
