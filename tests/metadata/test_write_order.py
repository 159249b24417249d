"""What is written in which order: parts before what names them, and nothing behind a write that failed."""

from __future__ import annotations

import random

import pytest

from strandline.core.control.state import ClusterHeader, TopicRecord, Transaction
from strandline.core.reigns.events import Head
from strandline.metadata.etcd_layout import (
    SnapshotNamed,
    SnapshotPart,
    TransactionPart,
    Transactions,
    append_writes,
    batches,
    snapshot_writes,
    write_in_order,
)

REIGN = "a" * 32


def transaction(offset: int, name_bytes: int = 0) -> Transaction:
    """A transaction; ``name_bytes`` that cannot be packed smaller make it a large one."""
    name = random.Random(offset).randbytes(name_bytes // 2).hex()
    topics = (TopicRecord(name=name, topic_id="t"),) if name_bytes else ()
    return Transaction(header=ClusterHeader(cluster_id="c", metadata_offset=offset), topics=topics)


def test_the_parts_of_a_transaction_come_before_it() -> None:
    """In their order, and what is whole in one value is one write."""
    (small,) = batches(REIGN, [transaction(7)], part_bytes=400)
    (large,) = batches(REIGN, [transaction(8, 3_000)], part_bytes=400)
    writes = list(append_writes(large))

    assert list(append_writes(small)) == [Transactions(small)]
    assert len(writes) > 3
    assert writes[-1] == Transactions(large)
    assert writes[:-1] == [TransactionPart(8, n, content) for n, content in enumerate(large.pieces[0].parts)]


def test_the_parts_of_a_snapshot_come_before_it() -> None:
    """What names them is last, and deletes what it replaces only then."""
    *parts, named = snapshot_writes(Head(REIGN, 9, "d"), b"0123456789", part_bytes=4)

    assert parts == [SnapshotPart(0, b"0123"), SnapshotPart(1, b"4567"), SnapshotPart(2, b"89")]
    assert isinstance(named, SnapshotNamed)


@pytest.mark.parametrize(("fails_at", "written"), [(0, [0]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (None, [0, 1, 2, 3])])
async def test_nothing_is_written_behind_what_failed(fails_at: int | None, written: list[int]) -> None:
    """The answer is the one of the last write that was made."""
    made: list[int] = []

    async def write(each: int) -> str:
        made.append(each)
        return "refused" if each == fails_at else f"done {each}"

    answer = await write_in_order(iter(range(4)), write, lambda answer: answer != "refused")

    assert made == written
    assert answer == ("done 3" if fails_at is None else "refused")


async def test_a_write_without_an_answer_ends_the_rest() -> None:
    """An outcome that is not known is an exception of the performer; nothing may follow it."""
    made: list[int] = []

    async def write(each: int) -> bool:
        made.append(each)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await write_in_order(iter(range(4)), write, bool)
    assert made == [0]
