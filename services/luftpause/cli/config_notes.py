"""What would a person want to know about a configuration that is right as it is written?"""

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from luftpause.kit.auth import CLUSTER_TOKEN, TOKEN
from luftpause.kit.config import AuthConfig, Config, ReplicaConfig, SchedulerConfig
from luftpause.kit.config_file import overlooked
from luftpause.kit.urls import base_url

NEAR: Final = (".local", ".internal", ".lan", ".localhost")
_LOCAL: Final = re.compile(r"^(https?://)(?:localhost|\[::1\])(?=[:/]|$)")
_COMPOSE: Final = " here, only the port that Compose publishes (and Kubernetes sets it for a Service of that name)"
NOT_OURS: Final = {"LUFTPAUSE_DATAPLANE_PORT": _COMPOSE, "LUFTPAUSE_RUNTIME_PORT": _COMPOSE}
APIS: Final = ("chat", "completions", "responses", "messages", "embeddings")


def notes(config: Config, environment: Mapping[str, str]) -> list[str]:
    """One sentence each, about replicas in their order first."""
    return [
        *(note for replica in config.replicas for note in _of_replica(replica, environment)),
        *_twins(config),
        *(f"{name} sets nothing{NOT_OURS.get(name, '')}; {meant} would" for name, meant in overlooked(environment)),
        *_record(config.scheduler),
        *_auth(config.auth, environment),
    ]


def _of_replica(replica: ReplicaConfig, environment: Mapping[str, str]) -> Iterator[str]:
    for note in (*_key(replica, environment), *_load(replica), *_models(replica), *_apis(replica)):
        yield f"{replica.name}: {note}"


def _key(replica: ReplicaConfig, environment: Mapping[str, str]) -> Iterator[str]:
    if not replica.api_key_env:
        return
    if not environment.get(replica.api_key_env, "").strip():
        yield f"the environment variable {replica.api_key_env} (api_key_env) is not set here; set it where the services run"
    parts = urlsplit(replica.url)
    if parts.scheme == "http" and _is_far(parts.hostname or ""):
        yield f"its key goes to {parts.hostname} unencrypted; write https:// where that can be spoken"


def _load(replica: ReplicaConfig) -> Iterator[str]:
    if replica.load == "none":
        if replica.load_from:
            yield "load_from is not asked, since load is none"
        if replica.max_in_flight is None and replica.kind == "generative" and replica.quota is None:
            yield "its turns are not capped: its load is not asked (load: none) and it has no max_in_flight"
        return
    own = f"{base_url(replica.url)}/metrics"
    for url in replica.load_from or ():
        if (url.rstrip("/") if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics") == own:
            yield f"load_from names {own}, its own page; the engines behind an SGLang router are on /engine_metrics"
    if replica.load_from and len(replica.load_from) > 1:
        yield f"its load is the sum of {len(replica.load_from)} pages, and unknown while one of them can't be read"


def _models(replica: ReplicaConfig) -> Iterator[str]:
    patterns = [model for model in replica.models or () if "*" in model]
    if patterns:
        yield f"takes any model that fits {', '.join(patterns)}; for one that it does not know its own error is passed on"
    odd = [model for model in patterns if any(sign in model for sign in (".*", "^", "$", "[", "?", "|"))]
    if odd:
        yield f"in {', '.join(odd)} only `*` is special and stands for anything; all else stands for itself"
    if replica.models is not None and not replica.models:
        yield "serves no model (models: []); leave models out to have them read from its /v1/models"


def _apis(replica: ReplicaConfig) -> Iterator[str]:
    if replica.apis is None:
        return
    unknown = [api for api in replica.apis if api not in APIS]
    if unknown:
        yield f"apis names {', '.join(unknown)}, which no request asks for; known are {', '.join(APIS)}"
    if not replica.apis:
        yield "apis: [] is taken as all; leave it out to have them found out, or name some"
    if replica.kind == "classifier":
        yield "apis says nothing for a classifier, which takes /v1/decide only"


def _twins(config: Config) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for replica in config.replicas:
        names.setdefault(_LOCAL.sub(r"\1127.0.0.1", base_url(replica.url)), []).append(replica.name)
    for url, twins in names.items():
        if len(twins) > 1:
            yield f"{', '.join(twins)}: have the same url {url}; each counts its turns as if it were alone there"


def _record(config: SchedulerConfig) -> Iterator[str]:
    if config.record is None:
        if config.record_clear:
            yield "scheduler.record_clear has no effect without scheduler.record"
        return
    shown = "as they are" if config.record_clear else "as keyed hashes"
    yield f"scheduler.record: every event is appended to logs in {config.record.absolute()}, run ids and callers {shown}"
    if problem := _unwritable(config.record):
        yield f"scheduler.record: {problem}"


def _auth(config: AuthConfig, environment: Mapping[str, str]) -> Iterator[str]:
    if config.tokens_file is None:
        return
    if not os.access(config.tokens_file, os.R_OK):
        yield f"auth.tokens_file: {config.tokens_file} can't be read by this user, or is not there"
    unset = [name for name in (TOKEN, CLUSTER_TOKEN) if not environment.get(name, "").strip()]
    if unset:
        yield f"auth.tokens_file needs {' and '.join(unset)} too; not set here, set it where the services run"


def _unwritable(folder: Path) -> str:
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        return f"{there} is no directory"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} can't be written to by this user"


def _is_far(host: str) -> bool:
    """Beyond this machine, its private network and its containers."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(NEAR)
