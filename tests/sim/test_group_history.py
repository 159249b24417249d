"""What clients saw of committed offsets (I30): each anomaly has a history that is found, and one that is not."""

from __future__ import annotations

import pytest

from strandline_sim.checks.group_history import CommitOutcome, Committed, Fetched, group_anomalies
from strandline_sim.runs.run import run_seed

DONE, UNKNOWN, NOT_WRITTEN = CommitOutcome.DONE, CommitOutcome.UNKNOWN, CommitOutcome.NOT_WRITTEN


def commit(value: int, at: int, done: int, outcome: CommitOutcome = DONE, group: str = "g") -> Committed:
    """A commit from ``at`` to ``done``."""
    return Committed(group, value, at, done, outcome)


def read(value: int | None, at: int, done: int, *, newest: bool = True, group: str = "g") -> Fetched:
    """A read from ``at`` to ``done``."""
    return Fetched(group, value, at, done, newest)


@pytest.mark.parametrize(
    "history",
    [
        [commit(1, 0, 10), read(None, 20, 30)],
        [commit(1, 0, 10), commit(2, 20, 30), read(1, 40, 50)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(2, 40, 50), read(1, 60, 70)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(2, 40, 50, newest=False), read(1, 60, 70)],
        [commit(1, 0, 10, NOT_WRITTEN), read(1, 20, 30)],
        [read(1, 0, 10), commit(1, 20, 30)],
        [read(7, 0, 10)],
        [commit(1, 0, 10, NOT_WRITTEN), read(1, 20, 30, newest=False)],
    ],
    ids=["lost", "stale", "went back", "undone", "refused and there", "from the future", "nobody's", "refused, seen"],
)
def test_what_no_order_of_commits_explains_is_found(history: list[Committed | Fetched]) -> None:
    """One sentence for the read that is wrong."""
    assert len(group_anomalies(history)) == 1


@pytest.mark.parametrize(
    "history",
    [
        [commit(1, 0, 10), read(1, 20, 30), read(1, 25, 40)],
        [commit(1, 0, 10), commit(2, 20, 50), read(1, 30, 40), read(2, 45, 60)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(1, 40, 50), read(2, 60, 70)],
        [commit(1, 0, 10), commit(2, 20, 30), read(1, 40, 50, newest=False)],
        [commit(1, 0, 100), commit(2, 20, 30), read(1, 40, 50)],
        [commit(1, 0, 10, group="h"), read(None, 20, 30)],
        [commit(1, 0, 10, UNKNOWN), read(None, 20, 30), read(1, 40, 50)],
    ],
    ids=["read twice", "at once", "late and unknown", "old, and said so", "order unknown", "another group", "later"],
)
def test_what_some_order_explains_is_not(history: list[Committed | Fetched]) -> None:
    """Commits that overlap may count in either order, and one without an answer at any time, or never."""
    assert group_anomalies(history) == []


def test_a_commit_that_is_open_when_a_run_ends_may_have_been_read() -> None:
    """A run of committers that ends between a read and the answer to the commit it shows breaks nothing."""
    assert run_seed(124, "groups").violation is None
