"""Which names do engines see for the tools of several MCP servers?"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

LENGTH_MAX: Final = 64
ALLOWED: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_FORBIDDEN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_LENGTH: Final = 8


def engine_names(tools: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """A name for each (server, tool): allowed by engines, distinct, and a function of the set alone.

    A tool keeps its own name where that is allowed and nobody else claims it. Names that several servers have get
    `server__tool`. What is still ambiguous after cleaning, or too long, ends in a digest of (server, tool).
    """
    keys = sorted(set(tools))
    claims: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in keys:
        claims[_clean(key[1], key)].append(key)
    names: dict[tuple[str, str], str] = {}
    for name, claimants in claims.items():
        names.update(_share(name, claimants))
    return _distinct(names)


def _share(name: str, claimants: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    servers = {server for server, _ in claimants}
    if len(servers) == 1:
        return _within_server(name, claimants)
    shared: dict[tuple[str, str], str] = {}
    for server in sorted(servers):
        own = [key for key in claimants if key[0] == server]
        shared.update(_within_server(_clean(f"{server}__{name}", own[0]), own))
    return shared


def _within_server(name: str, claimants: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """One server's `a_b`, `a.b` and `a/b`: the one that is spelled so keeps the name."""
    if len(claimants) == 1:
        return {claimants[0]: name}
    return {key: name if _spelled(key[1], name) else _with_digest(name, key) for key in claimants}


def _spelled(tool: str, name: str) -> bool:
    return tool == name or name.endswith(f"__{tool}")


def _distinct(names: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """A made-up name may be another tool's real one: the real one keeps it."""
    taken: set[str] = set()
    final: dict[tuple[str, str], str] = {}
    for key in sorted(names, key=lambda key: (names[key] != key[1], key)):
        name, salt = names[key], 0
        while name in taken:
            name = _with_digest(names[key], (*key, str(salt)) if salt else key)
            salt += 1
        taken.add(name)
        final[key] = name
    return final


def _clean(text: str, key: tuple[str, str]) -> str:
    """Every forbidden character becomes `_`; what is then too long or says nothing gets a digest."""
    name = _FORBIDDEN.sub("_", text)
    if len(name) > LENGTH_MAX:
        return _with_digest(name, key)
    if name != text and not name.strip("_-"):
        return _with_digest("tool", key)
    return name or _with_digest("tool", key)


def _with_digest(name: str, key: tuple[str, ...]) -> str:
    digest = hashlib.blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_LENGTH // 2).hexdigest()
    return f"{name[: LENGTH_MAX - _DIGEST_LENGTH - 1]}_{digest}"
