"""In which framing does an engine's answer go on to its client?"""

from collections.abc import Callable

from luftpause.dataplane.answer_head import BODILESS, AnswerHead
from luftpause.dataplane.framing import Chunked, Counted
from luftpause.dataplane.responses import CHUNKED, LAST_CHUNK, chunk
from luftpause.dataplane.sse import EventFilter

Emit = Callable[[bytes, bytes, bool], bytes]


class Passing:
    """`emit(raw, payload, done)` gives the bytes for the client, None: they go as they came; `framing` are the header lines that say so.

    `until_close`: only the end of the connection ends the body, so a lost answer must end it otherwise.
    """

    __slots__ = ("emit", "framing", "until_close")

    def __init__(self, head: AnswerHead, version: str, hide: EventFilter | None, *, begun: bool = False) -> None:
        """`begun`: the client was told already that its answer has no length."""
        self.until_close = False
        if isinstance(head.framing, Counted) and not begun and (hide is None or head.status in BODILESS):
            self.framing = b"" if head.status in BODILESS else b"content-length: %d\r\n" % head.framing.length
            self.emit: Emit | None = None
        elif version == "1.1":
            self.framing = CHUNKED
            self.emit = None if isinstance(head.framing, Chunked) and hide is None else _hiding(_in_chunks, hide)
        else:
            self.framing = b""
            self.until_close = True
            self.emit = _hiding(_bare, hide)


def _in_chunks(raw: bytes, payload: bytes, done: bool) -> bytes:
    return (chunk(payload) if payload else b"") + (LAST_CHUNK if done else b"")


def _bare(raw: bytes, payload: bytes, done: bool) -> bytes:
    return payload


def _hiding(emit: Emit, hide: EventFilter | None) -> Emit:
    if hide is None:
        return emit

    def filtered(raw: bytes, payload: bytes, done: bool) -> bytes:
        kept = hide.feed(payload)
        return emit(raw, kept + hide.rest() if done else kept, done)

    return filtered
