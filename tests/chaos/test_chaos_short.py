"""Plays the short forms of the fault scenarios with real processes in network namespaces, each in its own driver.

A machine without a facility (root, namespaces, FUSE) skips the scenario with the sentence that says what is missing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.scenario import scenarios

_HERE = Path(__file__).resolve().parent
_LONGEST_S = 300
_VOID = 3
_SKIPPED = 77


@pytest.mark.cluster
@pytest.mark.timeout(2 * (_LONGEST_S + 60))
@pytest.mark.parametrize("number", [number for number, each in scenarios().items() if each.has_short_form])
def test_short_form(number: int, tmp_path: Path) -> None:
    """The scenario's faults have an effect, and every criterion holds; a run without an effect is played once more."""
    code, said = _play(number, tmp_path / "first")
    if code == _VOID:
        code, said = _play(number, tmp_path / "second")
    if code == _SKIPPED:
        pytest.skip(said.strip())
    assert code == 0, said[-4000:]


def _play(number: int, directory: Path) -> tuple[int | None, str]:
    """Runs the driver; returns its exit code and output."""
    directory.mkdir()
    command = [sys.executable, str(_HERE / "chaos.py"), str(number), "--short", "--dir", str(directory)]
    with (directory / "driver.txt").open("wb") as sink:
        code = _ended(subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT))
    return code, (directory / "driver.txt").read_text()


def _ended(driver: subprocess.Popen[bytes]) -> int | None:
    """Waits for the driver's end; one that takes too long must undo its faults, and None is returned."""
    try:
        return driver.wait(_LONGEST_S)
    except subprocess.TimeoutExpired:
        os.kill(driver.pid, signal.SIGTERM)
        try:
            driver.wait(30)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
        return None
