"""The layer of unit tests: runs the tests that a mutant names, for bugs that no honest history shows.

The simulator and the scenarios play nodes that keep the protocol. A rule against a forged message, or one that only
makes a loss show earlier, breaks nothing there when it is missing, and has its tests beside the core.

Invariant: nothing of a test outlives its run: a module that was imported under a swapped rule would keep it.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from mutants.mutant import Layer, Verdict

ROOT = Path(__file__).resolve().parents[3]
_OPTIONS = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")

_BROKEN = re.compile(r"""^E +(?:[\w.]+: )?(?:assert ['"])?(I[0-9]+): """, re.MULTILINE)
"""An assertion of the product, or what a search reports, that names the invariant that is broken."""


class _Seen:
    """Counts the tests that ran, and keeps the first failure."""

    def __init__(self) -> None:
        self.played = 0
        self.failed = ""
        self.why = ""
        self.broken = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        self.played += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid
            self.why = str(report.longrepr).strip().splitlines()[-1][:200]
            broken = _BROKEN.search(str(report.longrepr))
            self.broken = broken[1] if broken else "test"


def judge(tests: Sequence[str]) -> Verdict:
    """Run the tests under these paths, relative to the root of the tree, until one fails."""
    seen, began_s = _Seen(), time.process_time()
    before = set(sys.modules)
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            code = pytest.main([*_OPTIONS, *(str(ROOT / test) for test in tests)], plugins=[seen])
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(ROOT / "tests")):
                del sys.modules[name]
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), said.getvalue()[-500:]
    return Verdict(
        layer=Layer.TESTS,
        killed_by=seen.broken,
        where=seen.failed.rpartition("/")[2],
        why=seen.why,
        tried=seen.played,
        seconds=time.process_time() - began_s,
    )
