"""Moves of replicas that have not ended: from where to where, how much is copied, and what each waits for.

Pure: a `Picture` and its rows in, rows out. Invariant: what is copied is what the present leader measured of the
replicas that a move adds; before it has measured them nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.console.overview import Chip, PartitionRow
from strandline.console.picture import Picture
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId

MOST_ROWS = 200
"""The most moves that the page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow:
    """One move. ``before`` and ``target`` are the replicas on both sides, ``adding`` what it still waits for."""

    row: PartitionRow
    is_running: bool
    before: tuple[NodeId, ...]
    target: tuple[NodeId, ...]
    adding: tuple[Chip, ...]
    copied_bytes: int | None
    total_bytes: int | None

    @property
    def percent(self) -> int | None:
        """The percentage that is copied, 100 if there is nothing to copy; None if not known."""
        if self.copied_bytes is None or self.total_bytes is None:
            return None
        return 100 * self.copied_bytes // self.total_bytes if self.total_bytes else 100


def move_rows(picture: Picture, rows: Sequence[PartitionRow]) -> tuple[MoveRow, ...]:
    """Every move, those that run first, then as `rows` are."""
    images = {each.tp: each for topic in (picture.image.topics if picture.image else ()) for each in topic.partitions}
    found = [move for row in rows for move in _moves(row, images[row.tp])]
    return tuple(sorted(found, key=lambda move: not move.is_running))


def _moves(row: PartitionRow, image: PartitionImage) -> Iterator[MoveRow]:
    if image.original:
        copied = _copied(row)
        total = None if row.size_bytes is None else row.size_bytes * len(image.adding)
        waited_for = tuple(chip for chip in row.chips if chip.is_adding and not chip.in_isr)
        yield MoveRow(
            row=row, is_running=True, before=image.original, target=image.target, adding=waited_for,
            copied_bytes=copied, total_bytes=total,
        )  # fmt: skip
    elif image.queued_target:
        yield MoveRow(
            row=row, is_running=False, before=image.replicas, target=image.queued_target, adding=(), copied_bytes=None,
            total_bytes=None,
        )  # fmt: skip


def _copied(row: PartitionRow) -> int | None:
    """Bytes of the leader's log that the added replicas hold."""
    size = row.size_bytes
    if size is None:
        return None
    return sum(max(0, size - _lag_bytes(chip, size)) for chip in row.chips if chip.is_adding)


def _lag_bytes(chip: Chip, size: int) -> int:
    # A replica that has not fetched in this epoch may hold nothing.
    return size if chip.lag_bytes is None else chip.lag_bytes
