"""S5: acknowledged, not committed."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def test_only_what_was_promised_above_the_hw_counts(histories: Any) -> None:
    """4 records for 10 s; an acknowledged offset below the HW is not a negative risk."""
    row = histories.row("s05", "lag")

    assert row.mean_records == pytest.approx(40 / 45, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.max_records) == (0, 4, 4)
    assert row.at_risk_us == 10_000 * MS


def test_a_look_that_does_not_say_is_unknown(histories: Any) -> None:
    """Without an acknowledged offset the risk is unknown."""
    row = histories.row("s05", "zombies")

    assert (row.max_records, row.at_risk_us, row.coverage) == (None, None, 0.0)
