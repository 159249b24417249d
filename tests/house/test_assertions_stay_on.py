"""No entry point runs without assertions: the invariants of the log are asserted, and stay on in production."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "services"
_CHILDREN = {"strandline.cli.demo.producing", "strandline.cli.demo.consuming"}
"""Started by `strandline demo` alone, with its own interpreter and environment."""
ENTRY_POINTS = [
    "strandline",
    "strandline.cli",
    "strandline_analytics.commands.submit",
    "strandline.console",
    "strandline.controller",
    "strandline.node",
    "strandline_analytics.report",
]


def _command(entry_point: str) -> list[str]:
    if entry_point == "strandline":
        return [sys.executable, str(Path(sys.executable).parent / "strandline"), "--version"]
    return [sys.executable, "-m", entry_point, "--help"]


def _run(entry_point: str, optimize: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONOPTIMIZE": optimize, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        _command(entry_point), env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_an_entry_point_without_assertions_is_refused(entry_point: str) -> None:
    """Under PYTHONOPTIMIZE=1, which is `python -O`, it ends with one line that says how to start it."""
    ran = _run(entry_point, "1")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(r"strandline: .*removes assertions.* start it without -O and .*\n", ran.stderr)


def test_without_docstrings_it_is_refused_as_well() -> None:
    """Under `python -OO` the line is the same, and no command fails before it because of a missing docstring."""
    assert "start it without -O" in _run("strandline", "2").stderr


def test_with_assertions_it_runs() -> None:
    """The command in these tests works without the option."""
    assert _run("strandline", "").returncode == 0


def test_no_entry_point_is_forgotten() -> None:
    """Every module that can be run as a program is among those that are tested here."""
    found = set()
    for root in (SERVICES, ROOT / "analytics"):
        for path in root.rglob("*.py"):
            if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE):
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                found.add(name.removesuffix(".__main__"))

    assert found - _CHILDREN == set(ENTRY_POINTS) - {"strandline"}
