"""Writes the generated gRPC code under services/luftpause/kit/wire/v1 from proto/.

Run it with the `proto` dependency group installed (`pip install --group proto`): `python tools/generate_proto.py`.
With a folder as argument it writes there instead, which is how the test compares.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"


def generate(target: Path) -> None:
    """Write `*_pb2.py`, `*_pb2.pyi`, `*_pb2_grpc.py` for every proto file below `target`; raises SystemExit on errors."""
    files = sorted(str(path) for path in SOURCE.rglob("*.proto"))
    arguments = ["protoc", f"-I{SOURCE}", f"--python_out={target}", f"--pyi_out={target}", f"--grpc_python_out={target}"]
    if code := protoc.main([*arguments, *files]):
        raise SystemExit(code)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "services")
