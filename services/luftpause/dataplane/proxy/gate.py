"""Who may send a call through `/proxy/…`, and to which target?"""

import base64
import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from luftpause.dataplane.proxy.headers import is_unsafe
from luftpause.dataplane.proxy.paths import PREFIX, Asked, asked_of
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import RequestHead
from luftpause.dataplane.responses import refusal
from luftpause.kit.auth import EVERYBODY, Access, Tokens

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client

TOKEN: Final = b"x-luftpause-token"
BARRED_METHODS: Final = frozenset({"TRACE", "CONNECT"})  # the first gives credentials back in its answer
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
FROM_PAGES: Final = frozenset({b"cross-site", b"same-site"})

OFF: Final = Rejection(
    404, "proxy_off", "the governed proxy is off; give a target of governor.targets its `proxy`, the base URL that calls go to"
)
CLOSED: Final = Rejection(
    403, "proxy_closed",
    "the governed proxy serves nobody as long as no token is set; set LUFTPAUSE_TOKEN and send it as `x-luftpause-token`, "
    "or open it to everybody who reaches this address by governor.proxy.open: true",
)  # fmt: skip
NO_TOKEN: Final = Rejection(401, "no_token", "a token is needed: send `x-luftpause-token: TOKEN`; Authorization belongs to the target here")
UNKNOWN_TOKEN: Final = Rejection(401, "unknown_token", "this x-luftpause-token opens nothing here; is it the newest one?")
OUR_TOKEN: Final = Rejection(
    400, "token_misplaced",
    "this call holds luftpause's own token where it would go on to the target; send it as `x-luftpause-token` only",
)  # fmt: skip
NO_WEBSOCKET: Final = Rejection(501, "no_websocket", "the governed proxy passes no WebSockets; connect to the target itself")
FROM_A_PAGE: Final = Rejection(403, "origin", "a web page may not send calls through the governed proxy")
BAD_HEADER: Final = Rejection(400, "bad_request", "malformed HTTP: a header holds a line end or NUL")


def is_proxied(head: RequestHead) -> bool:
    """Is this a request for the governed proxy?"""
    return head.path.startswith("/proxy") and (head.path == PREFIX[:-1] or head.path.startswith(PREFIX))


def is_preflight(head: RequestHead) -> bool:
    """A browser's question whether a page may call; it holds no token."""
    return head.method == "OPTIONS" and b"origin" in head.named and b"access-control-request-method" in head.named


def access_of(head: RequestHead, tokens: Tokens | None, *, is_open: bool) -> Access | Rejection:
    """Whose call it is. `tokens` None: none is set."""
    if tokens is None:
        return EVERYBODY if is_open else CLOSED
    shown = head.named.get(TOKEN)
    if not shown:
        return NO_TOKEN
    access = tokens.access(b"Bearer " + shown)
    if access is None:
        return UNKNOWN_TOKEN
    return OUR_TOKEN if _misplaced(head, tokens) else access


def target_of(head: RequestHead, targets: Collection[str], configured: Collection[str]) -> Asked | Rejection:
    """Where it goes. `targets` have an upstream; `configured` are all of the governor."""
    if not targets:
        return OFF
    barred = _barred(head)
    if barred is not None:
        return barred
    asked = asked_of(head.target)
    if isinstance(asked, Rejection) or asked.target in targets:
        return asked
    known = ", ".join(sorted(targets))
    if asked.target in configured:
        return Rejection(404, "no_proxy", f"the target {asked.target} has no `proxy` in governor.targets; those that have one: {known}")
    return Rejection(404, "unknown_target", f"no target is called {asked.target[:100]!r}; /proxy/ goes to {known}")


def _barred(head: RequestHead) -> Rejection | None:
    """What goes to no target at all."""
    if head.method in BARRED_METHODS:
        return Rejection(405, "method_not_allowed", f"the governed proxy passes no {head.method}", allow=", ".join(sorted(METHODS)))
    if b"origin" not in head.named and head.named.get(b"sec-fetch-site", b"").lower() in FROM_PAGES:
        return FROM_A_PAGE
    if b"websocket" in head.named.get(b"x-offered-upgrade", b"").lower():
        return NO_WEBSOCKET
    return BAD_HEADER if is_unsafe(head.headers) else None


def refusal_of(rejection: Rejection, conn: "Client", head: RequestHead) -> bytes:
    """The whole answer that says no."""
    return refusal(rejection, more=conn.more, close=not conn.keeps, bodiless=head.method == "HEAD")


def _misplaced(head: RequestHead, tokens: Tokens) -> bool:
    """Does what goes on hold a token of ours: a header (as it is, behind its scheme, as the password of `Basic`), or the query?"""
    found = [secret for name, value in head.headers if name != TOKEN for secret in _secrets_of(value)]
    found += [pair.rpartition(b"=")[2] for pair in head.target.partition(b"?")[2].split(b"&")]
    return any(secret and tokens.access(b"Bearer " + secret) for secret in found)


def _secrets_of(value: bytes) -> list[bytes]:
    scheme, _, rest = value.strip().partition(b" ")
    found = [value.strip(), rest.strip()]
    if scheme.lower() == b"basic":
        with contextlib.suppress(ValueError):
            found += base64.b64decode(rest.strip(), validate=True).split(b":", 1)
    return [each for each in found if each and b" " not in each]
