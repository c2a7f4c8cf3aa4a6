"""Who may call, and who is it?

`LUFTPAUSE_TOKEN` opens every door of the data plane and is believed what it says of callers. `auth.tokens_file` gives callers tokens of
their own: whoever comes with one is that caller, whatever its headers say. Neither set: everybody may call.
"""

import functools
import hashlib
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from msgspec import Struct

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.errors import ConfigError, LuftpauseError
from luftpause.kit.logs import Log

TOKEN: Final = "LUFTPAUSE_TOKEN"  # noqa: S105 (the variable's name)
CLUSTER_TOKEN: Final = "LUFTPAUSE_CLUSTER_TOKEN"  # noqa: S105
TOKEN_CHARS_MIN: Final = 16  # a shorter one is warned of
TOKEN_CHARS_MAX: Final = 4096
WARNED_MAX: Final = 1024
CALLER_BYTES_MAX: Final = 128
FILE_BYTES_MAX: Final = 4 * 2**20
LOOK_SECONDS: Final = 1.0  # the file is looked at this often
SEEN_MAX: Final = 1024  # headers that opened the door and are remembered
CHALLENGE: Final = "Bearer"  # what a 401 answers in `WWW-Authenticate`

log = Log("auth")

Stamp = tuple[int, int, int]


class Access(Struct, frozen=True, gc=False):
    """Somebody who may call. `principal`: the caller whose token it is; empty: what the request says of its caller is believed."""

    principal: str = ""


EVERYBODY: Final = Access()


class Tokens:
    """Which tokens open the door. The file is read again when it changes; while it has a mistake the tokens of before hold."""

    def __init__(self, token: str = "", file: Path | None = None, *, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._file = file
        self._own: dict[bytes, Access] = {_digest(token.encode()): EVERYBODY} if token else {}
        self._stamp: Stamp | None = None
        self._looked_at = clock()
        self._known = self._own
        self._seen: dict[bytes | None, Access] = {}  # by Authorization header
        self._seen_keys: dict[bytes, Access] = {}
        self._problem = ""  # of the file, as it was told last
        if file is not None:
            self._stamp = _stamp(file)
            self._known = self._with(file)

    @property
    def required(self) -> bool:
        return bool(self._own) or self._file is not None

    def access(self, authorization: bytes | None, api_key: bytes | None = None) -> Access | None:
        """
        Whose token it is; None: it opens nothing.

        `authorization` is that header (`Bearer`, in any case), `api_key` the header `x-api-key` of Anthropic's clients. It is looked up by
        its digest, so that the time it takes says nothing about a token; headers that opened before, by Python's hash with a secret key.
        """
        if not self.required:
            return EVERYBODY
        if self._file is not None:
            self._look(self._file)
        found = self._seen.get(authorization)
        return found if found is not None else self._find(authorization, api_key)

    def _find(self, authorization: bytes | None, api_key: bytes | None) -> Access | None:
        if len(self._seen) + len(self._seen_keys) >= SEEN_MAX:
            self._forget_seen()
        token = bearer(authorization)
        found = self._known.get(_digest(token)) if token else None
        if found is not None:
            self._seen[authorization] = found
        elif api_key:
            found = self._seen_keys.get(api_key) or self._known.get(_digest(api_key))
            if found is not None:
                self._seen_keys[api_key] = found
        return found

    def _forget_seen(self) -> None:
        self._seen.clear()
        self._seen_keys.clear()

    def _with(self, file: Path) -> dict[bytes, Access]:
        found = _read(file)
        for digest in self._own.keys() & found.keys():
            raise ConfigError(f"auth.tokens_file {file}: {found[digest].principal} has {TOKEN} as token; each needs one of its own")
        return self._own | found

    def _look(self, file: Path) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            stamp = _stamp(file)
            if stamp != self._stamp:
                self._stamp = stamp
                self._known = self._with(file)
                self._forget_seen()
                log.info("tokens read again", file=str(file), callers=len(set(self._known.values()) - {EVERYBODY}))
                self._problem = ""
        except ConfigError as error:
            if error.message != self._problem:
                self._problem = error.message
                log.warning("the tokens file has a mistake; the tokens of before hold", problem=error.message)


def tokens(file: Path | None, environ: Mapping[str, str] | None = None, *, clock: Clock = monotonic) -> Tokens:
    """The tokens of the data plane. Raises ConfigError."""
    return Tokens(from_environment(TOKEN, environ), file, clock=clock)


def cluster_tokens(file: Path | None, environ: Mapping[str, str] | None = None) -> Tokens:
    """The token of the control plane: an agent's token must not open it. Raises ConfigError."""
    return Tokens(cluster_token(file, environ))


def cluster_token(file: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """What services show each other; empty: nothing. Raises ConfigError."""
    own, shared = (from_environment(name, environ) for name in (CLUSTER_TOKEN, TOKEN))
    if file is not None and not own:
        raise ConfigError(f"auth.tokens_file needs {CLUSTER_TOKEN} too: an agent's token must not open the scheduler")
    return own or shared


def from_environment(name: str, environ: Mapping[str, str] | None = None) -> str:
    """A token from this variable; empty: not set. Raises ConfigError for one that no header may hold; it is never shown."""
    token = (os.environ if environ is None else environ).get(name, "").strip()
    if token:
        _check(token, name)
    return token


def bearer(authorization: bytes | None) -> bytes:
    """The token of an Authorization header; empty: there is none."""
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def unauthorized(authorization: bytes | None, api_key: bytes | None = None) -> LuftpauseError:
    """The 401 for headers that open nothing: which mistake it was and what would do. To be sent with `WWW-Authenticate: {CHALLENGE}`."""
    if bearer(authorization) or api_key:
        return LuftpauseError("this token opens nothing here; is it the newest one?", code="unknown_token", status=401)
    if authorization:
        return LuftpauseError("Authorization must be `Bearer TOKEN`", code="no_token", status=401)
    return LuftpauseError("a token is needed: send `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`", code="no_token", status=401)


def is_loopback(host: str) -> bool:
    """Does only this machine reach what listens there? `host` is a name or an address, IPv6 with or without brackets."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def warn_if_open(to: Log, host: str, known: Tokens) -> None:
    """One line at the start of a service that takes everybody."""
    if not known.required:
        who = "everybody on this machine" if is_loopback(host) else "everybody who reaches this address"
        to.warning(f"{TOKEN} is not set: {who} may call", host=host)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _check(token: str, name: str) -> None:
    if not (token.isascii() and token.isprintable()) or " " in token or len(token) > TOKEN_CHARS_MAX:
        raise ConfigError(f"{name}: a token must be visible ASCII without spaces, at most {TOKEN_CHARS_MAX} characters")
    if len(token) < TOKEN_CHARS_MIN:
        _warn_of_weak(name, _digest(token.encode()))


@functools.lru_cache(maxsize=WARNED_MAX)
def _warn_of_weak(name: str, _token: bytes) -> None:
    """Once for each in a process, however often it is read."""
    log.warning(f"a token of less than {TOKEN_CHARS_MIN} characters can be guessed; `openssl rand -hex 32` makes a good one", where=name)


# ---- the file -------------------------------------------------------------------------------------------------------


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError as error:
        raise ConfigError(f"auth.tokens_file {file}: can't be read: {error.strerror or error}") from error
    if stat.S_IMODE(found.st_mode) & 0o044:
        log.warning("others can read the tokens file; `chmod 600` it", file=str(file))
    if found.st_size > FILE_BYTES_MAX:
        raise ConfigError(f"auth.tokens_file {file}: longer than {FILE_BYTES_MAX} bytes; is this the right file?")
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: Path) -> dict[bytes, Access]:
    """`caller: token`, or a list of tokens while one replaces another. Mistakes are named by caller, tokens never shown."""
    try:
        rows: object = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"auth.tokens_file {file}: can't be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"auth.tokens_file {file}: not YAML; write one `caller: token` per line") from None
    if not isinstance(rows, dict) or not rows:
        raise ConfigError(f"auth.tokens_file {file}: must be a mapping; write one `caller: token` per line")
    found: dict[bytes, Access] = {}
    for caller, value in rows.items():  # pyright: ignore[reportUnknownVariableType]
        access = Access(_caller(caller, file))  # pyright: ignore[reportUnknownArgumentType]
        for token in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(token, str) or not token:
                raise ConfigError(f"auth.tokens_file {file}: the token of {access.principal} must be a text; put it in quotes")
            _check(token, f"{file}, {access.principal}")
            if found.get(_digest(token.encode()), access) != access:
                raise ConfigError(f"auth.tokens_file {file}: {access.principal} has the same token as another caller")
            found[_digest(token.encode())] = access
    return found


def _caller(name: object, file: Path) -> str:
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > CALLER_BYTES_MAX:
        raise ConfigError(f"auth.tokens_file {file}: a caller's name must be a text of at most {CALLER_BYTES_MAX} bytes, not {name!r}")
    return name
