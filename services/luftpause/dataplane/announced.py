"""Which of the replicas that the scheduler announced can this dataplane use?"""

from collections.abc import Mapping

from luftpause.dataplane.turns import Kind, Replica
from luftpause.dataplane.wire import KINDS_READ
from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import base_url
from luftpause.kit.wire.v1 import scheduler_pb2 as pb


def read_replicas(order: pb.Replicas, environ: Mapping[str, str]) -> tuple[dict[str, Replica], dict[str, str]]:
    """Usable replicas by name, and why each other one can't be used. Keys come from `environ` only, never by the wire."""
    usable: dict[str, Replica] = {}
    unusable: dict[str, str] = {}
    for each in order.replicas:
        read = _read(each, environ)
        if isinstance(read, Replica):
            usable[each.name] = read
        else:
            unusable[each.name] = read
    return usable, unusable


def _read(each: pb.Replica, environ: Mapping[str, str]) -> Replica | str:
    """The replica, or what is wrong with it."""
    api_key = ""
    if each.api_key_env:
        api_key = environ.get(each.api_key_env, "").strip()
        if not api_key:
            return f"the environment variable {each.api_key_env} with its API key is not set here"
        if not (api_key.isascii() and api_key.isprintable()):
            return f"the API key in {each.api_key_env} holds characters that no header can carry"
    kind = KINDS_READ.get(each.kind) if each.kind else Kind.GENERATIVE
    if kind is None:
        return f"its kind {each.kind} is newer than this dataplane"
    try:
        url = base_url(each.url)
    except ConfigError as error:
        return error.message
    return Replica(each.name, url, tuple(each.models), kind, each.state, api_key, tuple(each.apis))
