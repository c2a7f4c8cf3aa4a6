"""Is this machine ready: environment, state directory, ports?"""

import errno
import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from luftpause.cli.doctor_findings import Finding, fault, note, ok
from luftpause.cli.doctor_unreached import in_container
from luftpause.kit.config import Config, RuntimeConfig
from luftpause.runtime.journal import LOCK

PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SPARE_BYTES: Final = 64 * 2**20  # on the state's disk, beside what the journal keeps for itself


def environment(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """luftpause asks no proxy for local engines, but clients of agents do."""
    known = {name.upper(): value for name, value in environ.items()}
    set_ = [name for name in PROXIES if known.get(name, "").strip()]
    if not set_:
        return
    past = {host.strip().lower().removeprefix(".") for host in known.get("NO_PROXY", "").split(",")}
    if "*" in past:
        return
    missing = [host for host in ("127.0.0.1", "localhost") if host not in past]
    if missing:
        yield fault(
            "proxy variables",
            f"{', '.join(set_)} is set, and NO_PROXY does not name {' and '.join(missing)}: clients of agents would send what is for "
            f"luftpause on {_address(config.dataplane.host, config.dataplane.port)} to that proxy",
            f"export NO_PROXY={','.join(sorted((past | {'127.0.0.1', 'localhost'}) - {''}))} where agents run",
        )


def state(config: RuntimeConfig, *, runs: bool) -> Iterator[Finding]:
    """The runtime's directory: is there room, may it be written to, and who has it? `runs`: a runtime answers at the configured port."""
    what, folder = f"state directory {config.state}", config.state.absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        yield fault(what, f"{there} is no directory", "set runtime.state to a directory")
        return
    problem = _unwritable(there)
    if problem and in_container() and not runs:
        yield note(what, f"{problem}: right where the runtime is in another container", "ask the doctor there too")
        return
    if problem:
        yield fault(what, problem, "give this user the right to write there, or set runtime.state to another directory")
        return
    free = shutil.disk_usage(there).free
    if free < config.journal_reserve_bytes + SPARE_BYTES:
        yield fault(
            what,
            f"only {free / 2**20:,.0f} MiB are free on its disk: spawns are refused when it is full, and runs wait",
            "make room, or set runtime.state to a directory on another disk",
        )
        return
    yield from _lock(what, folder / LOCK, config, runs=runs) or [ok(what, f"can be written to, {free / 2**30:,.0f} GiB free")]


def _unwritable(folder: Path) -> str:
    """Why nothing can be written there, by trying."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return "its disk is full" if full else f"{folder} can't be written to ({error.strerror})"
    return ""


def _lock(what: str, path: Path, config: RuntimeConfig, *, runs: bool) -> list[Finding]:
    """Empty: nobody has it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        told = os.pread(fd, 20, 0).decode(errors="replace").strip()
    else:
        return []
    finally:
        os.close(fd)
    pid = int(told) if told.isdecimal() else 0
    if pid and _alive(pid) and runs:
        return [ok(what, f"a runtime (pid {pid}) is using it")]
    if pid and _alive(pid):
        return [
            fault(
                what,
                f"a runtime (pid {pid}) is using it, but none answers at port {config.port}: a second one can't start here",
                f"stop pid {pid}, or give one of the two a runtime.state of its own",
            )
        ]
    return [
        fault(
            what,
            f"{path} is still locked, though the runtime that locked it{f' (pid {pid})' if pid else ''} is gone",
            f"end the process that still has it open (`fuser -v {path}` shows it); on a network file system the lock may have outlived its "
            "machine: move the directory, or restart the file server",
        )
    ]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def taken(host: str, port: int) -> bool:
    """Something listens there, or the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return True
    return False


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
