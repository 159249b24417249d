"""State that stays is taken out of the collector's sight as it grows, and seldom."""

from __future__ import annotations

import subprocess
import sys

from strandline.runtime.process import LongLived

_PROGRAM = """
import gc
from strandline.runtime.process import LongLived
logs = [[number] for number in range(50_000)]
LongLived(lambda: len(logs)).look()
assert len(gc.get_objects()) < 10_000, len(gc.get_objects())
"""

_LOADED = """
import gc
from strandline.runtime.process import keep_what_is_loaded
keep_what_is_loaded()
assert gc.get_threshold()[0] > 1_000, gc.get_threshold()
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 1_000, len(gc.get_objects())
circle = []
circle.append(circle)
del circle
assert gc.collect() >= 1
"""


def test_what_was_loaded_is_not_looked_through_again() -> None:
    """A full collection visits the objects created after the start, and still finds garbage. In a separate process."""
    ended = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_grew_is_not_visited_by_the_next_full_collection() -> None:
    """Objects that exist at the look are not in the collector's generations any more. In a separate process."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_freeze_needs_growth_by_a_tenth() -> None:
    """Each freeze keeps what is garbage at that moment, so the same size, or a little more, brings none."""
    frozen_at: list[int] = []
    sizes = iter([99, 100, 100, 199, 200, 5_000, 5_499, 5_500])
    now = 0

    def size() -> int:
        nonlocal now
        now = next(sizes)
        return now

    state = LongLived(size, lambda: frozen_at.append(now))
    for _ in range(8):
        state.look()

    assert frozen_at == [100, 200, 5_000, 5_500]


def test_a_state_that_shrank_and_grew_again_is_not_frozen_twice() -> None:
    """Topics that are deleted and created over and over do not add a freeze each time."""
    frozen: list[None] = []
    sizes = iter([1_000, 0, 1_000, 0, 1_000])
    state = LongLived(lambda: next(sizes), lambda: frozen.append(None))
    for _ in range(5):
        state.look()

    assert len(frozen) == 1
