"""What a commit covers, also when the log was truncated while it ran (M55)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.core.log.replica_log import DurablePoint
from strandline.core.types import Offset


def test_a_commit_covers_what_was_appended_when_it_was_issued() -> None:
    """M55: records that arrive while a commit runs are covered by the next one."""
    point = DurablePoint(Offset(0))

    assert point.maybe_issue(Offset(5))
    assert not point.maybe_issue(Offset(9))
    point.complete(Offset(5))
    assert point.point == 5
    assert point.maybe_issue(Offset(9))


def test_no_commit_without_need() -> None:
    """No commit is issued while everything is durable."""
    assert not DurablePoint(Offset(7)).maybe_issue(Offset(7))


def test_a_cut_takes_away_at_once() -> None:
    """M55: a truncation to t sets the durable point to at most t."""
    point = DurablePoint(Offset(10))
    point.truncated(Offset(6))

    assert point.point == 6


def test_a_cut_between_issue_and_completion_bounds_the_commit() -> None:
    """M55: the lowest truncation since the issue bounds what the commit covers, even after further appends."""
    point = DurablePoint(Offset(0))
    point.maybe_issue(Offset(10))
    point.truncated(Offset(4))
    point.truncated(Offset(7))
    point.complete(Offset(10))

    assert point.point == 4
    assert point.maybe_issue(Offset(9))
    point.complete(Offset(9))
    assert point.point == 9


def test_a_stale_completion_proves_nothing() -> None:
    """A completion that does not name the commit in progress changes nothing."""
    point = DurablePoint(Offset(0))
    point.complete(Offset(8))
    point.maybe_issue(Offset(5))
    point.complete(Offset(8))

    assert point.point == 0
    assert not point.maybe_issue(Offset(9)), "the commit at 5 is still under way"


def test_a_commit_does_not_outlive_its_log() -> None:
    """A commit issued before the log was discarded covers nothing of the new one."""
    point = DurablePoint(Offset(0))
    point.maybe_issue(Offset(50))
    point.restarted(Offset(20))
    point.complete(Offset(50))

    assert point.point == 20


@given(st.lists(st.tuples(st.sampled_from(["append", "cut", "issue", "complete"]), st.integers(0, 6)), max_size=40))
def test_durable_point_agrees_with_a_log_of_marks(steps: list[tuple[str, int]]) -> None:
    """The durable point is the number of leading records that some completed commit really covered."""
    point = DurablePoint(Offset(0))
    # For every record: whether it was durable. And the identities of the records in the running commit.
    log: list[list[bool]] = []
    committing: list[list[bool]] | None = None
    issued = 0
    for verb, number in steps:
        if verb == "append":
            log.extend([False] for _ in range(number))
        elif verb == "cut" and number < len(log):
            del log[number:]
            point.truncated(Offset(number))
        elif verb == "issue" and point.maybe_issue(Offset(len(log))):
            committing, issued = list(log), len(log)
        elif verb == "complete" and committing is not None:
            for mark in committing:
                mark[0] = True
            committing = None
            point.complete(Offset(issued))

        durable = next((i for i, mark in enumerate(log) if not mark[0]), len(log))
        assert point.point == durable
