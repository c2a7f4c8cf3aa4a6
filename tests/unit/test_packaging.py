"""Does what is installed, generated and documented match what is in git?"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import missing

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("services/luftpause", "fakes/luftpause_fakes", "bench/luftpause_bench")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()


def files_in_git(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "--", *folders], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        missing("a git checkout", "run the tests in a clone")
    return {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()}


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        missing("hatchling", "pip install -c constraints.txt -e '.[dev]'")
    tracked = files_in_git(*SOURCES)
    clone = tmp_path / "clone"  # without what lies around untracked
    for name in [*tracked, "pyproject.toml", "README.md", "LICENSE"]:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(clone)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in tracked}


def test_the_generated_grpc_code_is_what_the_proto_file_gives(tmp_path: Path) -> None:
    python = os.environ.get("LUFTPAUSE_PROTO_PYTHON") or (sys.executable if importlib.util.find_spec("grpc_tools") else None)
    if python is None:
        missing("grpcio-tools", "install it apart and name its Python in LUFTPAUSE_PROTO_PYTHON, as .ci/run does")
    generated = subprocess.run(
        [str(python), str(ROOT / "tools/generate_proto.py"), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert generated.returncode == 0, generated.stderr
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert made
    assert made == {name: (ROOT / "services" / name).read_text() for name in made}


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    paths = os.pathsep.join(str(root / folder) for folder in ("services", "fakes", "bench"))
    return subprocess.run(
        [str(program), "--no-cache"], cwd=root, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("module", "line", "found"),
    [
        ("services/luftpause/scheduler/core/model.py", "import time", "luftpause.scheduler.core.model -> time"),
        ("services/luftpause/scheduler/core/model.py", "import asyncio", "luftpause.scheduler.core.model -> asyncio"),
        ("services/luftpause/runtime/core/model.py", "import time", "luftpause.runtime.core.model -> time"),
        ("fakes/luftpause_fakes/engine_model.py", "import time", "luftpause_fakes.engine_model -> time"),
        (
            "services/luftpause/dataplane/turns.py",
            "from luftpause.scheduler import app",
            "luftpause.dataplane.turns -> luftpause.scheduler.app",
        ),
        ("services/luftpause/kit/ids.py", "from luftpause.dataplane import app", "luftpause.kit.ids -> luftpause.dataplane.app"),
        ("services/luftpause/runtime/app.py", "import luftpause_fakes", "luftpause.runtime.app -> luftpause_fakes"),
    ],
)
def test_an_import_that_breaks_a_contract_is_caught(module: str, line: str, found: str, tmp_path: Path) -> None:
    for folder in ("services", "fakes", "bench"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    changed = tmp_path / module
    changed.write_text(f"{changed.read_text()}\n{line}\n")
    checked = lint_imports(tmp_path)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert found in " ".join(checked.stdout.split())


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)( ; .+)?", line)
            assert match, f"not an exact pin: {line}"
            found[_normal(match[1])] = match[2]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> set[str]:
    """Names of the project's own direct dependencies, those of its extras too."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {_normal(re.split(r"[<>=!~;\[ ]", entry, maxsplit=1)[0]) for entries in lists for entry in entries}
    return names - {"luftpause"}


def test_constraints_pin_every_dependency_exactly() -> None:
    assert required() <= set(pins())


def test_constraints_pin_what_the_dependencies_need_in_turn() -> None:
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    known, unpinned = pins(), set[str]()
    for name in known:
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # for another platform
        unpinned |= {
            _normal(need.name)
            for need in needs
            if (need.marker is None or need.marker.evaluate({"extra": ""})) and _normal(need.name) not in known
        }
    assert not unpinned


def test_constraints_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "--" not in text


def commands_of_the_readme() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip() and not line.startswith("#")]


def test_the_readme_begins_with_the_demo_and_the_tests_and_nothing_else() -> None:
    demo, test = commands_of_the_readme()[:2]
    assert demo == "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/luftpause demo"
    assert test == ".venv/bin/poe test"


def test_every_task_that_the_readme_or_ci_runs_exists() -> None:
    tasks = set(PROJECT["tool"]["poe"]["tasks"])
    ci = (ROOT / ".ci/run").read_text()
    named = set(re.findall(r"\bpoe ([a-z]+)", README + ci))
    assert {"test", "lint", "types"} <= named <= tasks


def test_ci_runs_the_readmes_test_command_last_and_ends_as_it_did() -> None:
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    steps = [number for number, line in enumerate(lines) if line.startswith("step ")]
    command = commands_of_the_readme()[1]
    assert [line for line in lines[steps[-1] :] if line.startswith(command)] == [f"{command} || tests=$?"]
    assert lines[-1] == 'exit "$tests"'


def test_every_luftpause_command_in_the_readme_exists() -> None:
    from typer.main import get_command

    from luftpause.cli.app import app

    known = set(get_command(app).commands)  # pyright: ignore[reportAttributeAccessIssue]
    code = commands_of_the_readme() + re.findall(r"`(luftpause [^`]+)`", README)
    named = {name for line in code for name in re.findall(r"(?:^|bin/)luftpause ([a-z][a-z-]+)", line)}
    assert named
    assert named <= known


def test_ci_installs_the_generator_that_the_project_names() -> None:
    group = PROJECT["dependency-groups"]["proto"]
    assert next(entry for entry in group if entry.startswith("grpcio-tools")) in (ROOT / ".ci/run").read_text()
