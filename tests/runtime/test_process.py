"""The common part of every service process."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from strandline.runtime.process import keep_what_is_loaded
keep_what_is_loaded()
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 1_000, len(gc.get_objects())
circle = []
circle.append(circle)
del circle
assert gc.collect() >= 1
"""


def test_what_was_loaded_is_not_looked_through_again() -> None:
    """A full collection visits the objects created after the start, and still finds garbage. In a separate process."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
