"""In which order the values of an append, and of a snapshot, are written (C8, C11).

A transaction that is too large for one value is stored as parts, a snapshot always is. Both exist when the value is
there that names their parts, so that one is written last, and only if every part was written.

Invariant: nothing is written behind a write that was refused or whose outcome is not known. Pure: who stores the values
performs one write at a time, and what an answer is stays its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

from strandline.core.reigns.events import Head
from strandline.metadata.etcd_layout import SNAPSHOT_PART_BYTES, Batch, snapshot_of

_Write = TypeVar("_Write")
_Answer = TypeVar("_Answer")


class TransactionPart(NamedTuple):
    """Put one part of a transaction."""

    offset: int
    number: int
    content: bytes


class Transactions(NamedTuple):
    """Put the log values of a batch, and the head."""

    batch: Batch


class SnapshotPart(NamedTuple):
    """Put one part of a snapshot."""

    number: int
    content: bytes


class SnapshotNamed(NamedTuple):
    """Put the value that names the snapshot's parts, and delete what the snapshot replaces."""

    content: bytes


def append_writes(batch: Batch) -> Iterator[TransactionPart | Transactions]:
    """The writes of one append, in order."""
    for piece in batch.pieces:
        for number, content in enumerate(piece.parts):
            yield TransactionPart(piece.offset, number, content)
    yield Transactions(batch)


def snapshot_writes(
    head: Head, packed: bytes, part_bytes: int = SNAPSHOT_PART_BYTES
) -> Iterator[SnapshotPart | SnapshotNamed]:
    """The writes of one snapshot of the state at ``head``, in order."""
    current, parts = snapshot_of(head, packed, part_bytes)
    for number, content in enumerate(parts):
        yield SnapshotPart(number, content)
    yield SnapshotNamed(current)


async def write_in_order(
    writes: Iterator[_Write], write: Callable[[_Write], Awaitable[_Answer]], went_well: Callable[[_Answer], bool]
) -> _Answer:
    """Perform writes one after the other, up to the first that did not go well. Returns the answer to the last one.

    What ``write`` raises ends them, too.
    """
    answer = await write(next(writes))
    for each in writes:
        if not went_well(answer):
            break
        answer = await write(each)
    return answer
