"""Writing a part of BENCHMARKS.md leaves what others wrote."""

from __future__ import annotations

from pathlib import Path

import run
from page_blocks import write_block

_EXPLAINED = "Written by hand: what the rows of the first block mean.\n"


def test_a_page_that_is_written_again_keeps_the_text_between_its_blocks(tmp_path: Path) -> None:
    """`make bench` writes what is before the first block, and keeps the blocks and the text that explains them."""
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("# Measures of an earlier run\n")
    write_block(page, "first", "make first", "a table")
    page.write_text(f"{page.read_text()}\n{_EXPLAINED}")
    write_block(page, "second", "make second", "another table")
    _, mark, kept = page.read_text().partition("<!-- first:")
    for _ in range(2):
        run.write_page({}, tmp_path)

    written = page.read_text()
    assert _EXPLAINED in kept
    assert written.endswith(mark + kept)
    assert "earlier run" not in written


def test_a_block_that_is_written_again_leaves_the_rest(tmp_path: Path) -> None:
    """Only its own text changes, in its own place."""
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("# Measures\n")
    write_block(page, "first", "make first", "a table")
    page.write_text(f"{page.read_text()}\n{_EXPLAINED}")
    before = page.read_text()
    write_block(page, "first", "make first", "a newer table")

    assert page.read_text() == before.replace("a table", "a newer table")
