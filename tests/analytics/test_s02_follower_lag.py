"""S2: lag of each replica."""

from __future__ import annotations

from typing import Any

import pytest


def _by_replica(rows: list[Any]) -> dict[tuple[int, str], Any]:
    return {(row.replica_id, row.expected_state): row for row in rows}


def test_each_replica_has_its_own_lag(histories: Any) -> None:
    """The lag is the leader's log end minus the replica's, and the leader is not a replica of its own."""
    rows = _by_replica(histories.rows("s02", "lag"))

    assert set(rows) == {(2, "member"), (3, "member")}
    assert rows[2, "member"].mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert rows[3, "member"].mean_records == pytest.approx(500 / 45, rel=1e-12)
    assert (rows[3, "member"].p50_records, rows[3, "member"].max_records) == (5, 30)


def test_who_is_down_is_a_row_of_its_own(histories: Any) -> None:
    """A replica is distinguished by its expected role, and time in which its position was unknown is not counted."""
    rows = _by_replica(histories.rows("s02", "alone"))

    assert {key: (row.max_records, row.coverage) for key, row in rows.items()} == {
        (2, "catching_up"): (40, 10 / 60),
        (2, "member"): (35, 30 / 60),
        (3, "down"): (80, 50 / 60),
    }
