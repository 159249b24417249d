"""S27: how transactions ended."""

from __future__ import annotations

from typing import Any

from strandline_analytics.scope import Grouping

S = 1_000_000


def test_aborts_are_counted_by_their_cause(histories: Any) -> None:
    """The producer asked, its time was over; a deposed coordinator's word counts nowhere."""
    pay, ship = histories.rows("s27", "txn_ends")[2:4]

    assert (pay.topic, pay.partition, pay.transactional_id) == ("__transaction_state", 4, "pay")
    assert (pay.committed, pay.aborted_by_producer, pay.timed_out, pay.fenced) == (1, 1, 1, 0)
    assert (ship.transactional_id, ship.committed, ship.timed_out, ship.fenced) == ("ship", 0, 0, 1)


def test_the_longest_is_from_its_beginning_to_its_decision(histories: Any) -> None:
    """The last marker is not waited for."""
    pay, ship = histories.rows("s27", "txn_ends")[2:4]

    assert (pay.longest_us, ship.longest_us) == (10 * S, 1_500_000)


def test_short_commits_are_sums_without_an_id(histories: Any) -> None:
    """Of two reports; nothing is known of how long they took."""
    row = histories.rows("s27", "txn_ends")[1]

    assert (row.transactional_id, row.committed, row.timed_out, row.longest_us) == (None, 500, 0, None)


def test_a_refused_marker_counts_in_the_partition_that_refused_it(histories: Any) -> None:
    """In the cluster it is one of the id's."""
    refused = histories.rows("s27", "txn_ends")[0]
    (whole,) = [
        row for row in histories.rows("s27", "txn_ends", grouping=Grouping.CLUSTER) if row.transactional_id == "pay"
    ]

    assert (refused.topic, refused.transactional_id, refused.refused_markers) == ("t", "pay", 1)
    assert (whole.refused_markers, whole.committed) == (1, 1)
