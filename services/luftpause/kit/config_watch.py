"""Has the configuration file changed, and do its replicas and quotas count from now on?

Replicas and the targets of quotas are re-read while a service runs; all else needs a restart, which the log says. A file counts once it
has stopped changing: editors and tools write in pieces, and half a file may well be valid. Whatever is wrong with it, what was read
before stays.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from luftpause.kit.config import Config
from luftpause.kit.config_base import Section
from luftpause.kit.config_file import load
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import ConfigError
from luftpause.kit.logs import Log
from luftpause.kit.serve import on_hangup

POLL_SECONDS: Final = 1.0

log = Log("config")


class _Stamp(Struct, frozen=True):
    """What of a file changes with its content, also when an editor or a mount puts another file in its place. All 0: it is not there."""

    modified_ns: int = 0
    changed_ns: int = 0
    bytes: int = 0
    inode: int = 0


class Watcher:
    """Looks at the file `config` was read from. No clock: a file is at rest when two looks in a row see it the same."""

    def __init__(self, path: Path, config: Config, environment: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._started = config
        self._config = config
        self._environment = environment
        self._seen: _Stamp | None = None  # in the last look
        self._read: _Stamp | None = None
        self._asked = False
        self._restart: tuple[str, ...] = ()  # keys that were said to need one

    def look(self, *, asked: bool = False) -> Config | None:
        """The file's configuration, where its replicas or targets are others than before. `asked`: read it also if it looks unchanged."""
        stamp = _stamp(self._path)
        at_rest = stamp == self._seen
        self._seen = stamp
        self._asked |= asked
        if not at_rest or (stamp == self._read and not self._asked):
            return None
        self._read, by_signal, self._asked = stamp, self._asked, False
        return self._reread(stamp, by_signal=by_signal)

    def _reread(self, stamp: _Stamp, *, by_signal: bool) -> Config | None:
        config = self._loaded()
        if config is None:
            return None
        if _stamp(self._path) != stamp:  # it changed again meanwhile
            self._read, self._asked = None, by_signal
            return None
        if "replicas" not in config.model_fields_set and self._config.replicas:
            log.warning(f"not taken, what was read before stays: {self._path} names no replicas; write `replicas: []` to remove all")
            return None
        self._tell_of_the_rest(config)
        return self._taken(config, by_signal=by_signal)

    def _loaded(self) -> Config | None:
        try:
            return load(self._path, self._environment)
        except ConfigError as error:
            log.warning(f"not taken, what was read before stays: {error.message}")
            return None

    def _taken(self, config: Config, *, by_signal: bool) -> Config | None:
        before = {replica.name: replica for replica in self._config.replicas}
        after = {replica.name: replica for replica in config.replicas}
        same_order = list(before) == list(after)
        targets, self._config = self._config.governor.targets, config
        if before == after and same_order:
            if targets != config.governor.targets:
                log.info("re-read; the targets of quotas have changed", path=str(self._path))
                return config
            if by_signal:
                log.info("re-read; the replicas are as before", path=str(self._path))
            return None
        log.info(
            "re-read; the replicas have changed",
            path=str(self._path),
            added=[name for name in after if name not in before],
            changed=[name for name in after if name in before and after[name] != before[name]],
            removed=[name for name in before if name not in after],
        )
        return config

    def _tell_of_the_rest(self, config: Config) -> None:
        keys = _others(self._started, config)
        if keys == self._restart:
            return
        self._restart = keys
        if keys:
            log.warning("these keys have changed in the file and take effect when the services are started anew", keys=list(keys))
        else:
            log.info("no key needs a restart any more")


async def follow(
    watcher: Watcher, changed: Callable[[Config], None], *, asked: asyncio.Event, poll_seconds: float = POLL_SECONDS
) -> None:  # fmt: skip
    """Look again and again, at once when `asked` is set, and hand on what has changed; for ever."""
    while True:
        by_signal = asked.is_set()
        asked.clear()
        try:
            config = await asyncio.to_thread(watcher.look, asked=by_signal)
            if config is not None:
                changed(config)
        except Exception:  # a file that nobody thought of must not end the looking
            log.exception("the configuration file could not be looked at")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(poll_seconds):
                await asked.wait()


@contextlib.contextmanager
def hangups(asked: asyncio.Event, gone: Callable[[], None]) -> Generator[None]:
    """Within the block SIGHUP sets `asked`. Where it means that this process's terminal was closed, it calls `gone` instead."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, on_hangup(gone, asked.set))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return _Stamp()
    return _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _others(old: Config, new: Config) -> tuple[str, ...]:
    """The keys outside `replicas` in which the two differ."""
    sections = [name for name in Config.model_fields if name != "replicas" and getattr(old, name) != getattr(new, name)]
    keys: list[str] = []
    for section in sections:
        before: Section = getattr(old, section)
        after: Section = getattr(new, section)
        keys += [f"{section}.{key}" for key in type(before).model_fields if _needed(before, key) != _needed(after, key)]
    return tuple(keys)


def _needed(section: Section, key: str) -> object:
    """What of a key is read at the start only: of the targets of quotas, where calls of dataplanes go and what they cost."""
    if not isinstance(section, GovernorConfig) or key != "targets":
        return getattr(section, key)
    return {name: (target.proxy, target.profile) for name, target in section.targets.items() if target.proxy is not None}
