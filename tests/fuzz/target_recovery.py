"""Target 2: for any damage to the files of a log, recovery keeps a prefix, and a second recovery changes nothing."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from damaged_logs import WOUNDS, check_recovery
from draws import Draws


def check(data: bytes) -> None:
    """The oracle of the property test of recovery, over choices read from ``data``."""
    draws = Draws(data)
    wounds = [
        (draws.choice(WOUNDS), draws.integer(0, 9), draws.integer(0, 2_000), draws.integer(1, 300))
        for _ in range(draws.integer(1, 3))
    ]
    with TemporaryDirectory() as directory:
        check_recovery(Path(directory) / "t-0", wounds, drop_indexes=draws.one_in(2))
