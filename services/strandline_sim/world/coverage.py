"""Whether a campaign saw what it promises: how often each thing happened, over all of its runs.

Invariant: a count is of things that happened in the cores or on the wire, never of things that were only planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


class Coverage:
    """Counts of what happened in one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def saw(self, what: str, times: int = 1) -> None:
        """Something happened."""
        self.counts[what] += times


def missing(counts: Mapping[str, int], promises: Iterable[str]) -> list[str]:
    """What was promised and never seen."""
    return [promise for promise in promises if not counts.get(promise)]
