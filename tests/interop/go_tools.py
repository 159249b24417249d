"""Builds h2spec and grpc-go's interoperability programs from the Go module proxy, once per tree, below `build/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GRPC_GO = "v1.85.0"
H2SPEC = "v2.2.1+incompatible"
_BIN = ROOT / "build" / "interop" / f"grpc-{GRPC_GO}-h2spec-{H2SPEC}"
_BUILD_S = 400.0


def h2spec() -> Path:
    """The conformance tests of HTTP/2."""
    return _installed("h2spec", f"github.com/summerwind/h2spec/cmd/h2spec@{H2SPEC}")


def interop_client() -> Path:
    """grpc-go's client of the interoperability cases."""
    return _installed("client", f"google.golang.org/grpc/interop/client@{GRPC_GO}")


def interop_server() -> Path:
    """grpc-go's service of the interoperability cases, on a port of loopback that it prints."""
    made = _BIN / "interop-server"
    if not made.exists():
        place = ROOT / "build" / "interop" / "server"
        shutil.copytree(Path(__file__).parent / "go", place, dirs_exist_ok=True)
        _go(["mod", "tidy"], place)
        _go(["build", "-o", str(made), "."], place)
    return made


def _installed(name: str, package: str) -> Path:
    made = _BIN / name
    if not made.exists():
        _go(["install", package], ROOT)
    return made


def _go(words: list[str], place: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on the PATH")
    _BIN.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOBIN": str(_BIN), "GOFLAGS": ""}
    ran = subprocess.run(
        ["go", *words], cwd=place, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if ran.returncode:
        pytest.skip(f"go {' '.join(words)}: packages cannot be had: {ran.stderr.strip().splitlines()[-1:]}")
