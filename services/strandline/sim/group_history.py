"""What clients of groups saw of committed offsets, and whether one register for each group explains it (I30).

Pure: a list of operations in, sentences out. A commit that was acknowledged counts from its answer at the latest; one
without an answer may count at any time from its sending on, or never, but once a read has returned it, it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class CommitOutcome(StrEnum):
    """What a client knows of its commit."""

    DONE = "done"
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of one group; every value of a run is committed once."""

    group: str
    value: int
    invoked_us: int
    completed_us: int
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True)
class Fetched:
    """A read; None: nothing was committed. One that need not be the newest may be of a coordinator that was deposed,
    and yet never shows what may be undone."""

    group: str
    value: int | None
    invoked_us: int
    completed_us: int
    is_newest: bool = True


def group_anomalies(operations: Iterable[Committed | Fetched]) -> list[str]:
    """Every read that no order of the commits explains, as a sentence; reads in the order of their answers."""
    commits: dict[str, list[Committed]] = {}
    reads: list[Fetched] = []
    for each in operations:
        if isinstance(each, Committed):
            commits.setdefault(each.group, []).append(each)
        else:
            reads.append(each)
    found: list[str] = []
    counts_by: dict[tuple[str, int], int] = {
        (c.group, c.value): c.completed_us for of in commits.values() for c in of if c.outcome is CommitOutcome.DONE
    }
    for read in sorted(reads, key=lambda each: each.completed_us):
        if sentence := _wrong(read, commits.get(read.group, ()), counts_by):
            found.append(sentence)
        if read.value is not None:
            key = (read.group, read.value)
            counts_by[key] = min(counts_by.get(key, read.completed_us), read.completed_us)
    return found


def _wrong(read: Fetched, commits: Sequence[Committed], counts_by: dict[tuple[str, int], int]) -> str:
    own = next((c for c in commits if c.value == read.value), None)
    if read.value is not None:
        if own is None or own.invoked_us > read.completed_us:
            return f"{read} returned a value that nobody had committed"
        if own.outcome is CommitOutcome.NOT_WRITTEN:
            return f"{read} returned the value of {own}"
    if not read.is_newest:
        return ""
    latest_us = min(counts_by.get((read.group, own.value), read.completed_us), read.completed_us) if own else -1
    for other in commits:
        by_us = counts_by.get((read.group, other.value))
        if by_us is not None and by_us < read.invoked_us and other.invoked_us > latest_us:
            return f"{read} missed {other}, which counted by {by_us}"
    return ""
