"""S14: proposals for an ISR."""

from __future__ import annotations

from typing import Any

MS = 1_000


def test_every_proposal_ends_in_one_way(histories: Any) -> None:
    """Committed, rejected, given up, abandoned with the term, or open at the end of the window."""
    row = histories.row("s14", "alter_partition")

    assert row.proposals == 6
    assert (row.committed, row.refused, row.timeout, row.abandoned, row.open) == (2, 1, 1, 1, 1)
    assert row.refused_by_code == {95: 1}


def test_only_answers_have_a_latency(histories: Any) -> None:
    """10, 30 and 100 ms; giving up after 2 s is no answer, and 5 s was the longest wait for one that never came."""
    row = histories.row("s14", "alter_partition")

    assert (row.p50_us, row.p95_us, row.max_us) == (30 * MS, 100 * MS, 100 * MS)
    assert row.max_stuck_us == 5_000 * MS


def test_no_proposals_are_0_proposals(histories: Any) -> None:
    """Where the state was known and there was no proposal, the count is 0."""
    row = histories.row("s14", "w1_clipping")

    assert (row.proposals, row.open, row.p50_us) == (0, 0, None)
