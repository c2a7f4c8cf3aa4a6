r"""How is JSON mended that has half a surrogate pair in it, or bytes that are no UTF-8, so that strict readers take it?

`"\ud83e"` is what JavaScript writes for a text that was cut in the middle of an emoji. It is valid JSON that stands for no text, and the
MCP SDK refuses the whole message. Only the lone half is replaced, by U+FFFD; whole pairs and escaped backslashes stay. So is each byte that
belongs to another encoding (servers on Windows write their own).
"""

import codecs
import re
from typing import Final

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_BEGUN: Final = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?|u[0-9a-fA-F]{0,3})?\Z")
_BEGUN_BYTES_MAX: Final = 11


def clean(data: bytes) -> bytes:
    """JSON, or several lines of it, that strict readers take; as it was where there is nothing to mend."""
    return without_lone_surrogates(data.decode("utf-8", "replace").encode())


def without_lone_surrogates(data: bytes) -> bytes:
    """JSON, or several lines of it, as it was but for escapes that stand for half a character."""
    return _ESCAPE.sub(_mended, data) if rb"\ud" in data or rb"\uD" in data else data


def _mended(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape["lone"] else escape[0]


class Mender:
    """`clean` for a stream: an escape or a character that is cut by a chunk's end waits for the rest; nothing else does."""

    def __init__(self) -> None:
        self._rest = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, chunk: bytes) -> bytes:
        data, self._rest = self._rest + self._decoder.decode(chunk).encode(), b""
        at = data.find(b"\\", max(0, len(data) - _BEGUN_BYTES_MAX))
        if at >= 0:
            data, self._rest = self._split(data)
        return without_lone_surrogates(data)

    def end(self) -> bytes:
        return without_lone_surrogates(self._rest + self._decoder.decode(b"", final=True).encode())

    @staticmethod
    def _split(data: bytes) -> tuple[bytes, bytes]:
        """Whole escapes, and the one that is only begun. Which backslash begins one can be told from the start only."""
        end = 0
        for escape in _ESCAPE.finditer(data):
            if _BEGUN.match(data, escape.start()):
                return data[: escape.start()], data[escape.start() :]
            end = escape.end()
        begun = data.find(b"\\", end)
        return (data, b"") if begun < 0 else (data[:begun], data[begun:])
