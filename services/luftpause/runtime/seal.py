"""Which key seals what clients bring back with their answers, also after a restart?"""

import os
import secrets
from pathlib import Path
from typing import Final

from luftpause.kit.errors import ConfigError

FILE: Final = "request_state.key"
KEY_BYTES: Final = 32


def request_state_key(state: Path) -> bytes:
    """Of this state directory, made at first use; readable by its owner only. Raises ConfigError."""
    path = state / FILE
    try:
        return _read(path) if path.exists() else _make(path)
    except OSError as error:
        raise ConfigError(f"runtime.state: {path} can't be used: {error.strerror}") from error


def _read(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) < KEY_BYTES:
        raise ConfigError(f"{path} holds {len(key)} bytes, not {KEY_BYTES}: delete it, and open questions of clients are asked anew")
    path.chmod(0o600)
    return key


def _make(path: Path) -> bytes:
    """Whole or not at all, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = secrets.token_bytes(KEY_BYTES)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return key
