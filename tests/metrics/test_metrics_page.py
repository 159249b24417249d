"""docs/METRICS.md equals the table of the code."""

from __future__ import annotations

from pathlib import Path

from strandline.metrics.page import rewritten

PAGE = Path(__file__).resolve().parents[2] / "docs" / "METRICS.md"


def test_the_page_is_written_by_the_table() -> None:
    """`make metrics-page` would change nothing."""
    assert rewritten(PAGE.read_text()) == PAGE.read_text(), "run: make metrics-page"
