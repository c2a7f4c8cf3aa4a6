"""Are revisions of a repository measured apart, and their figures put side by side?"""

import os
import subprocess
from pathlib import Path

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.compare import main as command
from luftpause_bench.compare.checkouts import Checkout, Checkouts, same_packages
from luftpause_bench.compare.figures import compare, figures
from luftpause_bench.report import Column, Report, Table, as_json

PROJECT = '[project]\nname = "luftpause"\nversion = "{version}"\ndependencies = ["{needs}"]\n'
PROGRAM = """\
import json, os, pathlib, sys
assert "PYTHONPATH" not in os.environ
arguments = sys.argv[1:]
assert arguments[0] == "bench", arguments
if arguments[1] == "broken":
    sys.exit("no engine is here")
if "{printed}" and arguments[-1] != "--json":
    sys.exit(2)
state = pathlib.Path(__file__).with_name("ran")
ran = int(state.read_text()) if state.exists() else 0
state.write_text(str(ran + 1))
found = {{"rates": [{rate} + ran], "quick": True, "seconds": 3}}
if "{printed}":
    print(json.dumps(found))
else:
    pathlib.Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(found))
sys.exit({status})
"""


def git(folder: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    return subprocess.run(("git", *names, *words), cwd=folder, check=True, capture_output=True, text=True, env=environ).stdout.strip()


def commit(folder: Path, message: str, *, rate: float, printed: str = "", status: int = 0) -> None:
    program = folder / "services" / "luftpause" / "__main__.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    (program.parent / "__init__.py").touch()
    program.write_text(PROGRAM.format(rate=rate, printed=printed, status=status))
    (folder / "pyproject.toml").write_text(PROJECT.format(version=rate, needs="msgspec>=0.20"))
    (folder / "constraints.txt").write_text("msgspec==0.20.0\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "As it was", rate=10.0, printed="yes")
    git(folder, "tag", "v1")
    commit(folder, "Faster", rate=20.0, status=1)
    return folder


def test_each_revision_runs_its_own_code_in_its_own_worktree_and_environment(repository: Path, tmp_path: Path) -> None:
    checkouts = Checkouts(repository, tmp_path / "kept")
    made = [checkouts.checkout(revision) for revision in ("v1", "HEAD")]
    assert [each.subject for each in made] == ["As it was", "Faster"]
    assert len({each.folder for each in made}) == len({each.python for each in made}) == 2
    found = command.play(made, ["rates", "--quick"], 2, quiet=True)
    assert found == [[{"rates[0]": 10.0}, {"rates[0]": 11.0}], [{"rates[0]": 20.0}, {"rates[0]": 21.0}]]
    before = made[1].python.parent.parent.stat().st_ctime_ns
    assert checkouts.checkout("main") == Checkout("main", made[1].commit, "Faster", made[1].folder, made[1].python)
    assert made[1].python.parent.parent.stat().st_ctime_ns == before, "it is made once"
    with pytest.raises(LuftpauseError, match="v1: bench broken ended with 1:\nno engine is here"):
        command.play(made, ["broken"], 1, quiet=True)
    with pytest.raises(LuftpauseError, match="there is no revision 'v9' here"):
        checkouts.checkout("v9")
    with pytest.raises(LuftpauseError, match="is no git checkout"):
        Checkouts(tmp_path, tmp_path / "kept").checkout("v1")


def test_a_revision_that_asks_for_other_packages_gets_them_installed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "constraints.txt").write_text("msgspec==0.21.0\n")
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr("luftpause_bench.compare.checkouts._run", lambda words, _trouble: installed.append(tuple(words)))
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)
    made = Checkouts(repository, tmp_path / "kept").checkout("HEAD")
    assert not same_packages(repository, made.folder)
    venv, pip = installed
    assert venv[1:3] == ("-m", "venv")
    assert pip == (str(made.python), "-m", "pip", "install", "-q", "-c", str(made.folder / "constraints.txt"), "-e", str(made.folder))


def test_tables_are_read_by_title_row_and_column() -> None:
    columns = (Column("way"), Column("runs", "per min"), Column("spread", "per min"), Column("p50", "s"), Column("p50", "s"))
    rows = (("ours", 3.0, 0.25, 1.5, 2.5), ("theirs", 2.0, None, 1.0, 2.0))
    report = Report(
        "x", "nothing", parameters={"agents": 3}, seeds=(1,), tables=(Table("runs; the original: 7", columns, rows),), bounds=(),
        seconds=1.0, quick=True, machine={}, versions={},
    )  # fmt: skip
    import json

    assert figures(json.loads(as_json(report))) == {
        "runs: ours: runs (per min)": 3.0, "runs: ours: runs (per min), spread (per min)": 0.25, "runs: ours: p50 (s)": 1.5,
        "runs: ours: p50 (s), p50 (s)": 2.5, "runs: theirs: runs (per min)": 2.0, "runs: theirs: p50 (s)": 1.0,
        "runs: theirs: p50 (s), p50 (s)": 2.0,
    }  # fmt: skip


def test_of_other_documents_every_number_counts_but_those_of_the_run_itself() -> None:
    document = {"seconds": 9, "machine": {"cores": 2}, "rows": [{"name": "x", "p50": 1, "seconds": 2.5}], "ok": True, "none": None}
    assert figures(document) == {"rows[0].p50": 1.0, "rows[0].seconds": 2.5}


def test_a_change_within_the_ranges_of_the_repeats_is_noise() -> None:
    faster, same, gone = compare([
        [{"a": 10.0, "b": 10.0, "c": 1.0}, {"a": 12.0, "b": 12.0}],
        [{"a": 20.0, "b": 11.0}, {"a": 24.0, "b": 13.0}],
    ])
    assert (faster.means, faster.spreads, faster.change, faster.noise) == ((11.0, 22.0), (1.0, 2.0), 1.0, False)
    assert (same.change, same.noise) == (pytest.approx(1 / 11), True)
    assert (gone.means, gone.change, gone.noise) == ((1.0, None), None, False)


@pytest.mark.parametrize(("arguments", "told"), [(["HEAD"], "which benchmark"), (["HEAD", "--repeats", "0", "--", "sim"], "at least 1")])
def test_what_is_missing_is_told(arguments: list[str], told: str) -> None:
    with pytest.raises(LuftpauseError, match=told):
        command.main(arguments)
