"""Which API formats are relayed to engines, and who reads their requests and answers?"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from luftpause.dataplane.chat import read_chat
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.observe import ChatJson, ChatStream, Observer
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import Kind


class Format(Struct, frozen=True):
    """One route. `read` takes the body and the key of the head digest; `stream` and `whole` make observers with a limit in bytes."""

    api: str
    path: str
    kind: Kind
    read: Callable[[bytes, bytes], Reading | Rejection]
    stream: Callable[[int], Observer]
    whole: Callable[[int], Observer]


FORMATS: Final = (Format("chat", "/v1/chat/completions", Kind.GENERATIVE, read_chat, ChatStream, ChatJson),)
