"""Which of the replicas that the scheduler announced can this dataplane use?"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from luftpause.dataplane.turns import Kind, Replica
from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import base_url


class Listed(Struct, frozen=True, gc=False):
    """A replica as it is announced, before it is looked at. `kind` is a number where only a newer version has a name for it."""

    name: str
    url: str
    models: tuple[str, ...]
    kind: Kind | int
    state: str
    api_key_env: str = ""
    apis: tuple[str, ...] = ()
    asks_usage: bool = False
    tells_limits: bool = False
    holds_limits: bool = False
    passes_unasked: bool = False


def read_replicas(replicas: Iterable[Listed], environ: Mapping[str, str]) -> tuple[dict[str, Replica], dict[str, str]]:
    """Usable replicas by name, and why each other one can't be used. Keys come from `environ` only, never from the scheduler."""
    usable: dict[str, Replica] = {}
    unusable: dict[str, str] = {}
    for each in replicas:
        read = _read(each, environ)
        if isinstance(read, Replica):
            usable[each.name] = read
        else:
            unusable[each.name] = read
    return usable, unusable


def _read(each: Listed, environ: Mapping[str, str]) -> Replica | str:
    """The replica, or what is wrong with it."""
    api_key = ""
    if each.api_key_env:
        api_key = environ.get(each.api_key_env, "").strip()
        if not api_key:
            return f"the environment variable {each.api_key_env} with its API key is not set here"
        if not (api_key.isascii() and api_key.isprintable()):
            return f"the API key in {each.api_key_env} holds characters that no header can carry"
    if not isinstance(each.kind, Kind):
        return f"its kind {each.kind} is newer than this dataplane"
    try:
        url = base_url(each.url)
    except ConfigError as error:
        return error.message
    return Replica(
        each.name, url, each.models, each.kind, each.state, api_key, each.apis, each.asks_usage, each.tells_limits, each.holds_limits,
        each.passes_unasked,
    )  # fmt: skip
