"""S17: incidents."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def _reported(row: Any) -> tuple[Any, ...]:
    return (row.began_us // MS, row.ended_us // MS, row.shrinks, row.partitions, row.removals, row.nodes, row.label)


def test_shrinks_chain_and_are_labelled(histories: Any) -> None:
    """One node, then one leader; two shrinks exactly 5 s apart are one chain, and too few for a label."""
    rows = histories.rows("s17", "incidents")

    assert [_reported(row) for row in rows] == [
        (10_000, 16_000, 3, 3, 3, 1, "single_node"),
        (30_000, 31_500, 3, 2, 3, 2, "leader_side"),
        (50_000, 55_000, 2, 2, 2, 2, None),
    ]
    assert (rows[0].top_node, rows[0].node_share) == (3, 1.0)
    assert rows[0].node_lift == pytest.approx(3.0, rel=1e-12)
    assert (rows[1].top_leader, rows[1].leader_share) == (1, 1.0)


def test_a_rack_is_seen_where_no_node_and_no_leader_is(histories: Any) -> None:
    """Four removals on two nodes of one rack under two leaders; then three of different kinds."""
    rows = histories.rows("s17", "racks")

    assert [_reported(row) for row in rows] == [
        (10_000, 13_000, 4, 4, 4, 2, "rack"),
        (40_000, 42_000, 3, 3, 3, 3, "mixed"),
    ]
    assert (rows[0].top_rack, rows[0].rack_share, rows[0].node_share) == ("b", 1.0, 0.5)
    assert (rows[1].top_rack, rows[1].rack_share) == ("a", 2 / 3)


def test_what_somebody_asked_for_is_no_part_of_a_failure(histories: Any) -> None:
    """A planned stop in the middle of a failure is a separate incident, and neither extends the other."""
    rows = histories.rows("s17", "planned")

    assert [(row.kind, *_reported(row)) for row in rows] == [
        ("unplanned", 10_000, 16_000, 4, 3, 4, 2, "leader_side"),
        ("planned", 12_000, 13_000, 2, 2, 2, 1, None),
    ]
    assert (rows[0].top_node, rows[0].node_share, rows[1].top_node) == (3, 0.75, 2)


def test_a_calm_cluster_has_a_row_without_an_incident(histories: Any) -> None:
    """The window has a row, and nothing began in it."""
    (row,) = histories.rows("s17", "lag")

    assert (row.began_us, row.shrinks, row.label) == (None, None, None)
