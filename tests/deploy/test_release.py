"""Does tools/release.sh stop where something is not ready, and do in order what it says?"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "CHANGELOG.md", "server.json", "deploy/helm/luftpause/Chart.yaml", "tools/release.sh")
VERSION = "7.8.9"


def version_now() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository that is ready for v7.8.9, with a remote, and a `docker` that writes down how it was called."""
    repo, remote, programs = tmp_path / "repo", tmp_path / "remote.git", tmp_path / "bin"
    for name in FILES:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, repo / name)
    for name in ("pyproject.toml", "server.json", "deploy/helm/luftpause/Chart.yaml"):
        text = (repo / name).read_text()
        (repo / name).write_text(
            re.sub(rf'(version = "|"version": "|ersion: "?|luftpause:){re.escape(version_now())}', rf"\g<1>{VERSION}", text)
        )
    changes = (repo / "CHANGELOG.md").read_text()
    (repo / "CHANGELOG.md").write_text(changes.replace("## Unreleased", f"## {VERSION} (2026-12-01)", 1))
    programs.mkdir()
    (programs / "docker").write_text(f'#!/bin/sh\necho "docker $*" >> {tmp_path}/called\n')
    (programs / "docker").chmod(0o755)
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(repo, "init", "-q", "-b", "main")
    git(repo, "remote", "add", "origin", str(remote))
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "ready")
    return repo


def git(folder: Path, *arguments: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
    done = subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **who}, capture_output=True, text=True, check=True)
    return done.stdout


def release(repo: Path, *arguments: str, dry: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PATH": f"{repo.parent / 'bin'}:{os.environ['PATH']}", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com", "DRY_RUN": "1" if dry else "",
    }  # fmt: skip
    return subprocess.run([str(repo / "tools/release.sh"), *arguments], env=environment, capture_output=True, text=True, check=False)


def called(repo: Path) -> list[str]:
    file = repo.parent / "called"
    return file.read_text().splitlines() if file.exists() else []


def test_a_release_builds_tags_and_pushes(clone: Path) -> None:
    done = release(clone, f"v{VERSION}")
    assert done.returncode == 0, done.stderr
    built, pushed = called(clone)
    assert "--push" not in built
    names = re.findall(r"--tag (\S+)", pushed)
    assert names == [f"ghcr.io/luftpause/luftpause:{tag}" for tag in (VERSION, "7.8", "latest")]
    assert pushed.endswith("--push .")
    assert git(clone.parent / "remote.git", "tag", "--list").split() == [f"v{VERSION}"]
    assert git(clone, "cat-file", "-t", f"v{VERSION}").strip() == "tag"  # annotated


def test_a_dry_run_prints_the_same_commands_and_does_nothing(clone: Path) -> None:
    printed = release(clone, f"v{VERSION}", dry=True)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert called(clone) == []
    assert git(clone, "tag", "--list") == ""
    wet = release(clone, f"v{VERSION}")
    assert [line for line in wet.stdout.splitlines() if line.startswith(("docker ", "git "))] == printed.stdout.splitlines()


def test_a_pre_release_moves_no_tag_that_people_follow(clone: Path) -> None:
    for name in ("pyproject.toml", "server.json", "deploy/helm/luftpause/Chart.yaml", "CHANGELOG.md"):
        (clone / name).write_text((clone / name).read_text().replace(VERSION, f"{VERSION}-rc.1"))
    git(clone, "commit", "-q", "-a", "-m", "a candidate")
    done = release(clone, f"v{VERSION}-rc.1")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"--tag (\S+)", called(clone)[1]) == [f"ghcr.io/luftpause/luftpause:{VERSION}-rc.1"]


@pytest.mark.parametrize(
    ("file", "was", "becomes", "said"),
    [
        ("pyproject.toml", f'"{VERSION}"', '"7.8.8"', f'pyproject.toml: there is no line `version = "{VERSION}"`'),
        (
            "deploy/helm/luftpause/Chart.yaml",
            f"\nversion: {VERSION}",
            "\nversion: 7.8.8",
            f"Chart.yaml: there is no line `version: {VERSION}`",
        ),
        ("deploy/helm/luftpause/Chart.yaml", f'"{VERSION}"', '"7.8.8"', f'Chart.yaml: there is no line `appVersion: "{VERSION}"`'),
        ("server.json", f'"version": "{VERSION}"', '"version": "7.8.8"', "server.json: there is no line"),
        ("server.json", f"luftpause:{VERSION}", "luftpause:7.8.8", f"server.json: the package is not luftpause:{VERSION}"),
        ("CHANGELOG.md", f"## {VERSION}", "## 7.8.90", f"CHANGELOG.md: there is no heading `## {VERSION}`"),
    ],
)
def test_a_file_with_another_version_stops_it(clone: Path, file: str, was: str, becomes: str, said: str) -> None:
    text = (clone / file).read_text()
    assert was in text
    (clone / file).write_text(text.replace(was, becomes, 1))
    git(clone, "commit", "-q", "-a", "-m", "not ready")
    done = release(clone, f"v{VERSION}")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (done.stdout, called(clone)) == ("", [])
    dry = release(clone, f"v{VERSION}", dry=True)
    assert (dry.returncode, dry.stderr) == (0, done.stderr)


def test_changes_that_are_not_committed_stop_it(clone: Path) -> None:
    (clone / "new").write_text("")
    done = release(clone, f"v{VERSION}")
    assert done.returncode == 1
    assert done.stderr == "not ready: there are changes that are not committed\n"
    assert called(clone) == []


def test_a_tag_that_exists_stops_it(clone: Path) -> None:
    git(clone, "tag", f"v{VERSION}")
    done = release(clone, f"v{VERSION}")
    assert done.returncode == 1
    assert done.stderr == f"not ready: the tag v{VERSION} exists\n"


@pytest.mark.parametrize("word", ["7.8.9", "v7.8", "v07.8.9", "v7.8.9+build", "latest", ""])
def test_what_is_no_version_is_refused(clone: Path, word: str) -> None:
    done = release(clone, word, dry=True)
    assert done.returncode == 2
    assert "is no version; write vX.Y.Z" in done.stderr


def test_without_a_version_it_says_how_it_is_called(clone: Path) -> None:
    done = release(clone)
    assert done.returncode == 2
    assert "tools/release.sh vX.Y.Z" in done.stderr


def test_the_files_of_the_repository_agree_on_their_version() -> None:
    chart = (ROOT / "deploy/helm/luftpause/Chart.yaml").read_text()
    server = (ROOT / "server.json").read_text()
    assert f"\nversion: {version_now()}\n" in chart
    assert f'\nappVersion: "{version_now()}"\n' in chart
    assert f'\n  "version": "{version_now()}",\n' in server
    assert f"luftpause:{version_now()}" in server
