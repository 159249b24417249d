"""S26: transactions that held back what readers of committed records see."""

from __future__ import annotations

from typing import Any

from strandline_analytics.scope import Grouping

S = 1_000_000


def test_each_producer_has_what_its_transactions_held_back(histories: Any) -> None:
    """Not from when the transaction began, but from when no earlier one was undecided; a reign at a time."""
    seven, eight = histories.rows("s26", "lso_held")[1:3]

    assert (seven.producer_id, seven.committed, seven.aborted, seven.undecided) == (7, 0, 1, 0)
    assert (seven.held_us, seven.longest_us) == (7 * S, 7 * S)
    assert (eight.producer_id, eight.committed, eight.aborted, eight.undecided) == (8, 0, 0, 2)
    assert (eight.held_us, eight.longest_us) == (48 * S, 28 * S)


def test_short_ones_have_no_producer(histories: Any) -> None:
    """Their leader reports how many there were, what became of them, and the sum of their times."""
    row = histories.rows("s26", "lso_held")[0]

    assert (row.producer_id, row.committed, row.aborted, row.undecided) == (None, 30, 2, 0)
    assert (row.held_us, row.longest_us) == (3_200_000, None)


def test_where_no_transaction_was_the_counts_are_zero(histories: Any) -> None:
    """The state of the partition was known."""
    row = histories.rows("s26", "lso_held")[4]

    assert (row.partition, row.producer_id, row.committed, row.held_us, row.longest_us) == (2, None, 0, 0, None)


def test_what_was_decided_at_the_end_of_a_term_is_not_believed(histories: Any) -> None:
    """Neither of a transaction that was reported by itself nor of short ones: both are a zombie's."""
    row = histories.rows("s26", "lso_held")[3]

    assert (row.partition, row.producer_id, row.committed, row.undecided, row.held_us) == (1, 9, 0, 1, 10 * S)


def test_the_decision_counts_where_it_is_seen(histories: Any) -> None:
    """In a longer window producer 8 commits once, in the reign of node 2; what node 1 said of it counts nowhere."""
    rows = histories.rows("s26", "lso_held", end_ms=240_000, grouping=Grouping.CLUSTER)
    (eight,) = [row for row in rows if row.producer_id == 8]

    assert (eight.committed, eight.undecided, eight.held_us) == (1, 1, 53 * S)
