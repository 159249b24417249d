"""A controller's copy of the simulated store: what it is made of, and what it does not believe (C8, C17)."""

from __future__ import annotations

import pytest

from strandline.core.control.state import ClusterHeader, ClusterState, TopicRecord, Transaction
from strandline.core.reigns.events import Head
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd_layout import batches, snapshot_of
from strandline.metadata.transactions import pack, state_of, whole
from strandline_sim.control.stored_values import KEYS, StoreCopy, StoredValues

REIGN = "1" * 32


def _transaction(offset: int) -> Transaction:
    header = ClusterHeader(cluster_id="c", secret="s", controller_epoch=1, metadata_offset=offset)
    return Transaction(header=header, topics=(TopicRecord(topic_id=f"id-{offset}", name=f"t{offset}"),))


def _stored(count: int, *, part_bytes: int = 1 << 20) -> StoredValues:
    """The values of that many transactions."""
    stored = StoredValues()
    for batch in batches(REIGN, [_transaction(offset + 1) for offset in range(count)], part_bytes=part_bytes):
        for piece in batch.pieces:
            stored.put(KEYS.log(piece.offset), piece.value, piece.offset)
            for number, part in enumerate(piece.parts):
                stored.put(KEYS.part(REIGN, piece.offset, number), part, piece.offset)
    return stored


def _fold(count: int) -> ClusterState:
    """The state after that many transactions."""
    state = state_of(_transaction(1))
    for offset in range(2, count + 1):
        state = state.apply(_transaction(offset))
    return state


def _add_snapshot(stored: StoredValues, offset: int, *, tail: int) -> None:
    current, parts = snapshot_of(Head(REIGN, offset, "d"), pack(whole(_fold(offset))), 50)
    for number, part in enumerate(parts):
        stored.put(KEYS.snapshot_part(offset, number), part, 100)
    stored.put(KEYS.current_snapshot, current, 100)
    stored.delete(KEYS.replaced_by_snapshot(Head(REIGN, offset, "d"), tail))


def test_a_copy_of_a_log_in_parts_is_its_fold() -> None:
    """Parts of 60 bytes are put together again."""
    copy = StoreCopy()

    assert not copy.begin(_stored(4, part_bytes=60))
    assert copy.state == _fold(4)


def test_a_copy_behind_the_log_begins_again_from_the_snapshot() -> None:
    """What lies between is gone; a copy that the log reaches needs no snapshot."""
    lagging, near = StoreCopy(), StoreCopy()
    lagging.begin(_stored(1))
    near.begin(_stored(4))
    stored = _stored(6)
    _add_snapshot(stored, 5, tail=1)

    assert [lagging.begin(stored), near.begin(stored)] == [True, False]
    assert lagging.state == near.state == _fold(6)
    assert stored.get(KEYS.log(3)) is None


def test_a_gap_is_not_read_over() -> None:
    """Without the snapshot that holds them, deleted transactions are damage."""
    stored = _stored(4)
    stored.delete([(KEYS.log(2), KEYS.log(3))])

    with pytest.raises(DamagedDocument, match="gap"):
        StoreCopy().begin(stored)


def test_parts_that_are_not_whole_are_not_believed() -> None:
    """A part is missing, or is another one: nothing is applied."""
    stored = _stored(1, part_bytes=60)
    key, value = stored.range(KEYS.logs, KEYS.parts)[0]
    copy = StoreCopy()
    taken = copy.taken(key, value)
    parts = stored.parts(taken)

    assert not copy.apply(taken, parts[:-1])
    assert not copy.apply(taken, (b"x" * 60, *parts[1:]))
    assert copy.head is None
    assert copy.apply(taken, (*parts, b"of an earlier attempt"))
