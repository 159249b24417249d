"""S3: age of the oldest uncommitted record."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def test_the_age_rises_until_the_record_is_committed(histories: Any) -> None:
    """The mean is the integral of a slope, idle time counts as 0, and the maximum is reached at the end of a hold."""
    row = histories.row("s03", "lag")

    assert row.mean_us == pytest.approx(172.5e6 / 45, rel=1e-12)
    assert row.max_us == 15_000 * MS
    assert row.waiting_us == 25_000 * MS
    assert row.estimated_us == 15_000 * MS
    assert row.n_negative == 0


def test_an_idle_partition_has_no_lag(histories: Any) -> None:
    """Without uncommitted records the age is 0, not undefined: 31 of 35 s were idle."""
    row = histories.row("s03", "coalesced")

    # Samples from 1,000 to 4,080 and from there to 5,000 have uncommitted records, both without an append time.
    assert row.waiting_us == row.estimated_us == (3_080 + 920) * MS
    assert row.max_us == 3_080 * MS
    assert row.coverage == pytest.approx(35 / 60, rel=1e-12)
