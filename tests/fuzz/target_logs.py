"""Targets 2 and 4: a log after any damage to its files.

For any damage, recovery keeps a prefix, and a second recovery changes nothing; for any content of an index file, reads
and seeks by time give the answers of the batches.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from damaged_logs import WOUNDS, check_indexes, check_recovery
from draws import Draws


def check_recovered(data: bytes) -> None:
    """Target 2: one or several wounds, with the index files or without them."""
    draws = Draws(data)
    wounds = [
        (draws.choice(WOUNDS), draws.integer(0, 9), draws.integer(0, 2_000), draws.integer(1, 300))
        for _ in range(draws.integer(1, 3))
    ]
    with TemporaryDirectory() as directory:
        check_recovery(Path(directory) / "t-0", wounds, drop_indexes=draws.one_in(2))


def check_indexed(data: bytes) -> None:
    """Target 4: an index file with flipped bytes, or with another content altogether."""
    draws = Draws(data)
    suffix, clean = draws.choice((".index", ".timeindex")), draws.one_in(2)
    flips = [(draws.integer(0, 1 << 16), draws.integer(0, 255)) for _ in range(draws.integer(0, 3))]
    content = draws.rest() if draws.one_in(2) else None
    with TemporaryDirectory() as directory:
        check_indexes(Path(directory) / "t-0", suffix, content, flips, clean=clean)
