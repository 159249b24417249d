"""`make check` compares the contract with the released one: buf finds changes that would break a caller."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).parent / "buf"


def _breaking(protos: Path) -> subprocess.CompletedProcess[str]:
    released = ROOT / "protos" / "released" / "v1.binpb"
    return subprocess.run(
        [str(BUF), "breaking", str(protos), "--against", str(released)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  bytes records = 2;\n", ""),
        ("bytes records = 2;", "bytes records = 12;"),
        ("bytes records = 2;", "bytes batches = 2;"),
        ("bytes records = 2;", "string records = 2;"),
    ],
)
def test_a_change_that_breaks_callers_is_found(before: str, after: str, tmp_path: Path) -> None:
    """A field that is renumbered, renamed, of another type or removed is rejected."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos", ignore=shutil.ignore_patterns("released"))
    contract = tmp_path / "protos" / "strandline" / "v1" / "leader_service.proto"
    text = contract.read_text()
    assert before in text
    contract.write_text(text.replace(before, after, 1))

    assert _breaking(tmp_path / "protos").returncode == 100
