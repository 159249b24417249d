"""What a record of a Kafka cluster's metadata log costs to import, in counts that no busy machine changes."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from pathlib import Path

import pytest
from counted_calls import CountedCalls
from metadata_log_bytes import NO_OP, batch, change, feature, ids, node, partition, topic, voters

from strandline.export.destination import LocalDirectory
from strandline_kafka.metadata import merging, writing
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import open_copy

PARTITIONS = 100
"""A multiple of `CHANGES_A_BATCH`."""
CHANGES_A_BATCH = 10
IDLE_MS = 500
HOUR_MS = 1_795_388_400_000
"""The beginning of an hour; each hour begins with a snapshot of every partition."""


def write_log(root: Path, records: int) -> None:
    """A controller's log of at least so many records behind those that create the partitions: half of them are its idle
    records, one a batch, the others changes of ISRs, ten a batch, in which a follower leaves or comes back. The quorum
    has one voter, so that all is committed."""
    made = batch(2, topic(), *(partition(1, 2, 3, index=index) for index in range(PARTITIONS)), at_ms=HOUR_MS)
    batches, offset, at_ms = (
        [voters(0, 1, at_ms=HOUR_MS), batch(1, feature(), at_ms=HOUR_MS), made],
        3 + PARTITIONS,
        HOUR_MS,
    )
    for first in range(0, records // 2 + 1, CHANGES_A_BATCH):
        for _ in range(CHANGES_A_BATCH):
            batches.append(batch(offset, NO_OP, at_ms=at_ms))
            offset, at_ms = offset + 1, at_ms + IDLE_MS
        rounds, place = divmod(first, PARTITIONS)
        isr = ids(1, 2, 3) if rounds % 2 else ids(1, 2)
        changes = [change(place + each, t0=isr) for each in range(CHANGES_A_BATCH)]
        batches.append(batch(offset, *changes, at_ms=at_ms))
        offset += CHANGES_A_BATCH
    node(root, 1, *batches)


FEW, MANY = 1_000, 3_000
MOST_CALLS_A_RECORD = 110
"""Python functions that one record runs through in both passages (`passage`), rows of events included."""


def imported(folder: Path, records: int) -> None:
    Import([open_copy(folder / str(records) / "node1")], "c").write(LocalDirectory(folder / f"out{records}"))


def calls_of(folder: Path, records: int) -> int:
    write_log(folder / str(records), records)
    with CountedCalls() as calls:
        imported(folder, records)
    return len(calls)


def _peak_bytes(folder: Path, records: int) -> int:
    """Of an import that is not the first, which loads modules and fills caches."""
    write_log(folder / str(records), records)
    imported(folder, records)
    shutil.rmtree(folder / f"out{records}")
    gc.collect()
    tracemalloc.start()
    try:
        imported(folder, records)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_record_costs_few_calls_and_not_more_in_a_longer_log(tmp_path: Path) -> None:
    """Each of the last 1,000 records costs at most 110 calls, and not more than one of 1,000 before."""
    calls_of(tmp_path / "first", 10)
    few, more, many = (calls_of(tmp_path, records) for records in (FEW, 2 * FEW, MANY))
    assert (many - more) / FEW <= MOST_CALLS_A_RECORD
    assert many - more <= 1.05 * (more - few)


def test_a_longer_log_needs_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the records are imported within 1.3 times the memory, once what is kept of them has its most."""
    monkeypatch.setattr(writing, "ROWS_A_FILE", 100)
    monkeypatch.setattr(merging, "MOST_IN_MEMORY", 4_096)
    few, many = (_peak_bytes(tmp_path, records) for records in (FEW, MANY))
    assert many <= 1.3 * few
