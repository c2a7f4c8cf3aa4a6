"""Which API formats are relayed to engines, and who reads their requests and answers?"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from luftpause.dataplane.chat import read_chat, read_completion
from luftpause.dataplane.early import chat_event, messages_event, responses_event
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.messages_api import read_messages, read_model
from luftpause.dataplane.observe import Observed
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses_api import read_responses
from luftpause.dataplane.seen_chat import ChatSeen, PassSeen
from luftpause.dataplane.seen_messages import MessagesSeen
from luftpause.dataplane.seen_responses import ResponsesSeen
from luftpause.dataplane.turns import Kind


class Format(Struct, frozen=True):
    """One route, and the path that an engine has for it. `read` takes the body and the key of the head digest.

    `error_event` tells an error within a stream.
    """

    api: str
    route: str
    path: str
    kind: Kind
    read: Callable[[bytes, bytes], Reading | Rejection]
    seen: Callable[[], Observed]
    error_event: Callable[[Rejection], bytes] = chat_event


CHAT: Final = Format("chat", "/v1/chat/completions", "/v1/chat/completions", Kind.GENERATIVE, read_chat, ChatSeen)
CLASSIFY: Final = Format("classify", "/v1/decide", "/classify", Kind.CLASSIFIER, read_model, PassSeen)
FORMATS: Final = (
    CHAT,
    Format("completions", "/v1/completions", "/v1/completions", Kind.GENERATIVE, read_completion, ChatSeen),
    Format("responses", "/v1/responses", "/v1/responses", Kind.GENERATIVE, read_responses, ResponsesSeen, responses_event),
    Format("messages", "/v1/messages", "/v1/messages", Kind.GENERATIVE, read_messages, MessagesSeen, messages_event),
    Format("embeddings", "/v1/embeddings", "/v1/embeddings", Kind.EMBEDDING, read_model, PassSeen),
)
