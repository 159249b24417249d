"""The committed modules match the protos, and the protos keep buf's rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
GENERATED = ROOT / "services" / "strandline"
PACKAGES = ("v1", "etcd/v1")


def _generated_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*_pb2*.py*"))}


@pytest.mark.parametrize("package", PACKAGES)
def test_generated_code_is_fresh(package: str, tmp_path: Path) -> None:
    """Generating again gives exactly the committed files: none differs, none is missing, none is left over."""
    subprocess.run([sys.executable, PROTOS / "generate.py", tmp_path], check=True, timeout=60)

    again = _generated_in(tmp_path / "strandline" / package)
    committed = _generated_in(GENERATED / package)

    assert committed
    assert again.keys() == committed.keys()
    assert [name for name in again if again[name] != committed[name]] == [], "run: make protos"


@pytest.mark.parametrize("arguments", [["lint"], ["format", "--diff", "--exit-code"]], ids=["lint", "format"])
def test_buf_accepts_the_contract(arguments: list[str]) -> None:
    """`buf lint` with STANDARD and COMMENTS, and `buf format`, report nothing."""
    buf = Path(sys.executable).parent / "buf"

    ran = subprocess.run([buf, *arguments, PROTOS], capture_output=True, text=True, timeout=60)

    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
