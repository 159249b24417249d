"""Target 4: for any content of an index file, reads and seeks by time give the answers of the batches."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from damaged_logs import check_indexes
from draws import Draws


def check(data: bytes) -> None:
    """The oracle of the property test of the indexes, over choices read from ``data``."""
    draws = Draws(data)
    suffix, clean = draws.choice((".index", ".timeindex")), draws.one_in(2)
    flips = [(draws.integer(0, 1 << 16), draws.integer(0, 255)) for _ in range(draws.integer(0, 3))]
    content = draws.rest() if draws.one_in(2) else None
    with TemporaryDirectory() as directory:
        check_indexes(Path(directory) / "t-0", suffix, content, flips, clean=clean)
