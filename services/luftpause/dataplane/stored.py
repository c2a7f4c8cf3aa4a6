"""Which requests go to engines without being turns: stored responses, and counting tokens?"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from luftpause.dataplane.bodies import plain
from luftpause.dataplane.errand import Errand
from luftpause.dataplane.messages_api import read_model
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import refusal
from luftpause.dataplane.servers import serving, speaking

if TYPE_CHECKING:
    from luftpause.dataplane.door import Serve
    from luftpause.dataplane.exchange import Request
    from luftpause.dataplane.http import Conn
    from luftpause.dataplane.relay import Relay

COUNT_TOKENS: Final = "/v1/messages/count_tokens"
STORED: Final = re.compile(r"/v1/responses/([A-Za-z0-9._:-]{1,512})(/cancel|/input_items)?")
NO_RESPONSE: Final = Rejection(404, "response_not_found", "no replica that is up has the Responses API, so nobody stores that response")
NOT_THERE: Final = frozenset({404, 405, 501})  # an engine without this route


class StoredRoutes:
    """Found by path; `methods` says how they may be asked."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._whole: Mapping[str, Serve] = {"GET": self._serve, "DELETE": self._serve}
        self._cancel: Mapping[str, Serve] = {"POST": self._serve}
        self._items: Mapping[str, Serve] = {"GET": self._serve}

    def methods(self, path: str) -> "Mapping[str, Serve]":
        """None: there is no such path."""
        found = STORED.fullmatch(path)
        if found is None or found[1] in {".", ".."}:
            return {}
        match found[2]:
            case "/cancel":
                return self._cancel
            case "/input_items":
                return self._items
            case _:
                return self._whole

    def _serve(self, conn: "Conn", request: "Request") -> None:
        """To the replica that has it; else to each in turn, until one does."""
        found = STORED.fullmatch(request.head.path)
        everybody = speaking(self._relay.scheduler.replicas.values(), "responses")
        if found is None or not everybody:
            conn.answer(refusal(NO_RESPONSE, more=conn.more, close=not conn.keeps))
            return
        errand = Errand(self._relay, conn, request, request.head.path.encode("latin-1"), lambda status: not 200 <= status < 300)
        errand.locate(found[1], everybody, request.principal)


def count_tokens(relay: "Relay", conn: "Conn", request: "Request") -> None:
    """To any healthy replica that serves the model and Messages."""
    reading = read_model(plain(request.body), relay.key)
    able = reading if isinstance(reading, Rejection) else serving(relay.scheduler.replicas.values(), reading.model, "messages")
    if isinstance(able, Rejection):
        conn.answer(refusal(able, more=conn.more, close=not conn.keeps))
        return
    errand = Errand(relay, conn, request, COUNT_TOKENS.encode(), lambda status: status >= 500 or status in NOT_THERE)
    first = relay.rotate(len(able))
    errand.ask(able[first:] + able[:first])
