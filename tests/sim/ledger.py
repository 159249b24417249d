"""The ledger of campaigns, `docs/campaigns.jsonl`: which seeds ran at which commit, and what they found.

One JSON object per line; a line is written when its seeds have ended, so an interrupted campaign keeps what it ran.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

LEDGER = Path(__file__).resolve().parents[2] / "docs" / "campaigns.jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """Consecutive seeds of one profile, all run at one commit."""

    profile: str
    first: int
    seeds: int
    """How many: the last seed is ``first + seeds - 1``."""
    commit: str
    events: int
    broken: dict[str, list[int]]
    """Invariant -> the seeds that broke it; empty if all are clean."""
    date: str
    """UTC, as 2026-11-23."""

    @property
    def span(self) -> range:
        """The seeds."""
        return range(self.first, self.first + self.seeds)


class LedgerDamaged(Exception):
    """A line of the ledger cannot be read; the message names file, line and remedy."""


def read(path: Path = LEDGER) -> list[Row]:
    """Every row, oldest first; none if there is no ledger.

    Raises:
        LedgerDamaged: a line is not a row.
    """
    if not path.exists():
        return []
    return [_row(line, path, number) for number, line in enumerate(path.read_text().splitlines(), 1)]


def append(row: Row, path: Path = LEDGER) -> None:
    """Write one row behind the others, in one write, and wait until it is durable."""
    line = json.dumps(asdict(row)).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, line)
        os.fsync(fd)
    finally:
        os.close(fd)


def clean_seeds(rows: Iterable[Row], profile: str) -> set[int]:
    """The seeds of a profile that ran and broke nothing in the newest row that holds them."""
    clean: set[int] = set()
    for row in rows:
        if row.profile == profile:
            clean.update(row.span)
            clean.difference_update(*row.broken.values())
    return clean


def next_seed(rows: Iterable[Row], profile: str) -> int:
    """The first seed behind all that the ledger holds of a profile."""
    return max((row.span.stop for row in rows if row.profile == profile), default=0)


def table() -> str:
    """What all campaigns ran and found, a row for each profile: a block of docs/RELIABILITY.md."""
    rows = read()
    lines = ["| profile | seeds | events | last run | broken then |", "|---|---|---|---|---|"]
    for profile in sorted({row.profile for row in rows}):
        own = [row for row in rows if row.profile == profile]
        broken = [f"{name} in seed {seed}" for row in own for name, seeds in row.broken.items() for seed in seeds]
        cells = (f"{sum(row.seeds for row in own):,}", f"{sum(row.events for row in own):,}", max(r.date for r in own))
        lines.append(f"| `{profile}` | {' | '.join(cells)} | {', '.join(broken) or 'nothing'} |")
    return "\n".join(lines)


def _row(line: str, path: Path, number: int) -> Row:
    try:
        found = json.loads(line)
        wrong = set(found) ^ {field.name for field in fields(Row)}
    except (ValueError, TypeError) as error:
        raise LedgerDamaged(f"{path.name}, line {number}: {error}; remove the line, its seeds run again") from error
    if wrong:
        raise LedgerDamaged(
            f"{path.name}, line {number}: missing or unknown {', '.join(sorted(wrong))}; "
            "remove the line, its seeds run again"
        )
    return Row(**found)
