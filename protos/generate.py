"""Generates the packages of protos/ into modules: `python protos/generate.py [OUTPUT]`, by default into services/.

Protects: a generated package is what the contract says and nothing else. Every file it writes is replaced
as a whole, generated files whose proto is gone are removed, and a path below protos/ is the path below OUTPUT.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGES = (Path("strandline/v1"), Path("strandline/etcd/v1"))
PATTERN = "*_pb2*.py*"


def generate(output: Path) -> int:
    """Write the generated modules and stubs of every proto below `output`; returns protoc's exit code."""
    messages = []
    for package in PACKAGES:
        (output / package).mkdir(parents=True, exist_ok=True)
        for stale in (output / package).glob(PATTERN):
            stale.unlink()
        messages += [str(proto.relative_to(PROTOS)) for proto in sorted((PROTOS / package).glob("*.proto"))]
    # Only service files get service modules: the others' would be empty.
    services = [proto for proto in messages if proto.endswith("_service.proto")]
    return _protoc(output, ["python", "mypy"], messages) or _protoc(output, ["grpc_python", "mypy_grpc"], services)


def _protoc(output: Path, generators: list[str], protos: list[str]) -> int:
    # The plugins are installed beside the interpreter; a shell without the activated venv would not find them.
    plugins = Path(sys.executable).parent
    # protoc is older than the protobuf that runs here (requirements/protoc.txt), so it has its own interpreter.
    command = [
        str(ROOT / ".venv" / "protoc" / "bin" / "python"),
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={PROTOS}",
        *(f"--plugin=protoc-gen-{name}={plugins / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")),
        *(f"--{name}_out={'quiet:' if name.startswith('mypy') else ''}{output}" for name in generators),
        *protos,
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "services"))
