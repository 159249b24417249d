"""S9: removals by cause."""

from __future__ import annotations

from typing import Any


def _counts(rows: list[Any]) -> dict[tuple[int, int | None, str], tuple[int, int]]:
    return {(row.replica_id, row.leader_id, row.removal_cause): (row.removals, row.young_epoch) for row in rows}


def test_a_lag_is_stuck_slow_or_unknown(histories: Any) -> None:
    """The last fetch against that leader's limit decides; a removal without progress is in a bucket of its own."""
    assert _counts(histories.rows("s09", "causes")) == {
        (3, 1, "lag_stuck"): (1, 0),
        (3, 1, "lag_slow"): (1, 0),
        (2, 1, "lag_unknown"): (1, 0),
        (1, 3, "lag_stuck"): (1, 1),
    }


def test_what_the_controller_declared_stands(histories: Any) -> None:
    """Removals that were not for a lag keep their cause, with the leader after the change."""
    assert _counts(histories.rows("s09", "failover")) == {
        (1, 2, "node_fenced"): (1, 0),
        (2, 3, "controlled_shutdown"): (1, 0),
    }
