"""How does a revision get a worktree and an environment of its own?

Kept under `$XDG_CACHE_HOME/luftpause/compare/<commit>`, as most of their price is the installation. Where a revision asks for the same
packages as this checkout, its environment uses the ones that are here, and nothing is installed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from luftpause.cli.weights import cache_folder
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.report import SOURCES

SOURCE_ROOTS: Final = ("services", "fakes", "bench")
EXTRAS: Final = ("bench", "local", "dev")  # those that a revision doesn't have are left out
INSTALL_SECONDS_MAX: Final = 900.0
GIT_SECONDS_MAX: Final = 120.0
TAIL_CHARACTERS: Final = 2_000


class Checkout(Struct, frozen=True):
    """`name`: what the user said; `python`: the interpreter that runs this revision."""

    name: str
    commit: str
    subject: str
    folder: Path
    python: Path


class Checkouts:
    """Of one repository. `folder`: where worktrees and environments are kept."""

    def __init__(self, repository: Path = SOURCES, folder: Path | None = None) -> None:
        self._repository = repository
        self._folder = folder or cache_folder() / "compare"

    def checkout(self, revision: str) -> Checkout:
        """Made if it isn't there yet. Raises LuftpauseError (`no_repository`, `no_revision`, `not_installed`)."""
        commit = self._commit(revision)
        tree, environment = self._folder / commit[:16] / "tree", self._folder / commit[:16] / "venv"
        if not (tree / ".git").exists():
            shutil.rmtree(tree, ignore_errors=True)
            tree.parent.mkdir(parents=True, exist_ok=True)
            self._git("worktree", "prune")
            self._git("worktree", "add", "--detach", "--force", str(tree), commit)
        done = environment / "made-for"
        if not done.exists():
            shutil.rmtree(environment, ignore_errors=True)
            if same_packages(self._repository, tree):
                _share(environment, tree)
            else:
                _install(environment, tree)
            done.write_text(commit)
        subject = self._git("log", "-1", "--format=%s", commit)
        return Checkout(revision, commit, subject, tree, environment / "bin" / "python")

    def _commit(self, revision: str) -> str:
        if not (self._repository / ".git").exists():
            raise LuftpauseError(f"{self._repository} is no git checkout: compare runs in a clone", code="no_repository")
        try:
            return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except LuftpauseError as error:
            raise LuftpauseError(f"there is no revision {revision!r} here; `git log --oneline` lists some", code="no_revision") from error

    def _git(self, *words: str) -> str:
        command = ("git", *words)
        done = subprocess.run(command, cwd=self._repository, capture_output=True, text=True, check=False, timeout=GIT_SECONDS_MAX)
        if done.returncode:
            raise LuftpauseError(f"git {' '.join(words)}: {done.stderr.strip()}", code="git")
        return done.stdout.strip()


def same_packages(one: Path, other: Path) -> bool:
    """Do two checkouts ask for the same packages, pinned alike?"""
    return _asked(one) == _asked(other)


def _asked(folder: Path) -> tuple[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    constraints = folder / "constraints.txt"
    pins = constraints.read_text() if constraints.exists() else ""
    return pins, sorted(project.get("dependencies", []))


def _share(environment: Path, tree: Path) -> None:
    """Its own sources, before the packages of the environment that this runs in."""
    _run((sys.executable, "-m", "venv", "--without-pip", str(environment)), "the environment can't be made")
    paths = [str(tree / root) for root in SOURCE_ROOTS] + [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    site = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "luftpause-revision.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n")


def _install(environment: Path, tree: Path) -> None:
    _run((sys.executable, "-m", "venv", str(environment)), "the environment can't be made")
    constraints = ("-c", str(tree / "constraints.txt")) if (tree / "constraints.txt").exists() else ()
    offered = tomllib.loads((tree / "pyproject.toml").read_text())["project"].get("optional-dependencies", {})
    extras = ",".join(extra for extra in EXTRAS if extra in offered)
    python = str(environment / "bin" / "python")
    _run((python, "-m", "pip", "install", "-q", *constraints, "-e", f"{tree}[{extras}]" if extras else str(tree)), "it can't be installed")


def _run(words: Sequence[str], trouble: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX, env={**os.environ, "PIP_NO_INPUT": "1"}
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LuftpauseError(f"{trouble}: it took longer than {INSTALL_SECONDS_MAX:.0f} s", code="not_installed") from None
    if done.returncode:
        said = (done.stderr or done.stdout)[-TAIL_CHARACTERS:].strip()
        raise LuftpauseError(f"{trouble}: {said}", code="not_installed")
