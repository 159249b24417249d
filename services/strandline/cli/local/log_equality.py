"""Whether the copies of a log are equal: the same batches, byte for byte, from the highest log start to the
lowest HW (M62).

Invariant: segment borders and everything above the lowest HW may differ; below it one differing byte, one
missing or one additional batch is a difference, and its offset is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple


class Fingerprint(NamedTuple):
    """One batch without its bytes: where it lies, who led when it was written, and a hash of all its bytes."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    size_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One replica's log: where it begins, how far it is settled, how far it goes."""

    name: str
    log_start_offset: int
    high_watermark: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """The result for one partition. ``difference`` is None when the copies are equal."""

    topic: str
    partition: int
    replicas: tuple[str, ...]
    start: int
    end: int
    leo: int
    """Where the longest copy ends; what lies above ``end`` was not compared."""
    batches: int = 0
    size_bytes: int = 0
    difference: str | None = None

    @property
    def equal(self) -> bool:
        """Whether something was compared, unless there is nothing, and no difference was found."""
        return self.difference is None and not self.is_vacuous

    @property
    def is_vacuous(self) -> bool:
        """Whether the copies hold records and none was compared."""
        return not self.batches and self.leo > max(self.start, self.end)

    @property
    def verdict(self) -> str:
        """The result as a sentence."""
        if self.difference is not None:
            return f"different: {self.difference}"
        left = max(self.leo - self.end, 0)
        if self.is_vacuous:
            return f"nothing compared: the lowest known HW is {self.end}, the logs end at {self.leo}"
        return f"equal; {left} above the HW not compared" if left else "equal"


def bounds(copies: Iterable[Copy]) -> tuple[int, int]:
    """The range that must be equal: highest log start, lowest HW."""
    known = list(copies)
    return max(copy.log_start_offset for copy in known), min(copy.high_watermark for copy in known)


def compare(
    topic: str, partition: int, copies: Iterable[Copy], batches: Mapping[str, Iterable[Fingerprint]]
) -> Equality:
    """Compares the copies of one partition batch by batch; ``batches`` has each copy's batches by its name.

    Batches outside of the common range are passed over, whatever they hold.
    """
    known = tuple(copies)
    start, end = bounds(known)
    names = [copy.name for copy in known]
    walks = [_within(batches[name], start, end) for name in names]
    count = size_bytes = 0
    reached = start
    for row in zip_longest(*walks):
        if (difference := _row_difference(names, row, reached)) is not None:
            break
        count, size_bytes, reached = count + 1, size_bytes + row[0].size_bytes, row[0].next_offset
    else:
        difference = f"the log ends at {reached}, below the HW {end}" if reached < end else None
    return Equality(
        topic=topic,
        partition=partition,
        replicas=tuple(names),
        start=start,
        end=end,
        leo=max(copy.leo for copy in known),
        batches=count,
        size_bytes=size_bytes,
        difference=difference,
    )


def _within(batches: Iterable[Fingerprint], start: int, end: int) -> Iterable[Fingerprint]:
    for batch in batches:
        if batch.base_offset >= end:
            return
        if batch.next_offset > start:
            yield batch


def _row_difference(names: list[str], row: tuple[Fingerprint | None, ...], reached: int) -> str | None:
    """What differs between the copies' next batches; None when nothing does."""
    first = row[0]
    for name, other in zip(names[1:], row[1:], strict=True):
        if other == first:
            continue
        if first is None or other is None:
            short, long = (names[0], name) if first is None else (name, names[0])
            return f"at offset {reached} {short} has no batch where {long} has one"
        return f"at offset {first.base_offset} {names[0]} and {name} differ in {_fields(first, other)}"
    return None


def _fields(first: Fingerprint, other: Fingerprint) -> str:
    pairs = zip(("offset", "end", "leader epoch", "size"), first[:4], other[:4], strict=True)
    named = [f"{field} ({one} and {two})" for field, one, two in pairs if one != two]
    return ", ".join(named) or "bytes"
