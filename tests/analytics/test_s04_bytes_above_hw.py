"""S4: bytes above the HW."""

from __future__ import annotations

from typing import Any

import pytest


def test_exposure_is_bytes_times_time(histories: Any) -> None:
    """1,000 bytes for 10 s and 4,000 for 15 s are 70,000 byte-seconds."""
    row = histories.row("s04", "lag")

    assert row.byte_seconds == 70_000.0
    assert row.mean_bytes == pytest.approx(70_000 / 45, rel=1e-12)
    assert row.max_bytes == 4_000


def test_looks_without_byte_counters_cover_nothing(histories: Any) -> None:
    """Where the bytes are not known the exposure is null, not 0."""
    row = histories.row("s04", "zombies")

    assert (row.byte_seconds, row.mean_bytes, row.max_bytes, row.coverage) == (None, None, None, 0.0)
