"""What a record of a Kafka cluster's metadata log costs to import, in counts that no busy machine changes."""

from __future__ import annotations

import gc
import shutil
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest
from counted_calls import CountedCalls

from strandline.export.destination import LocalDirectory
from strandline.records.batch import CONTROL_BIT, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline_kafka.metadata import merging, writing
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import open_copy

# ---- kafka_history_log
# Metadata logs as a Kafka controller writes them, of any length, to measure what an import costs.
#
# Half of the records are the controller's idle records, one a batch; the others are changes of ISRs, ten a batch: a
# follower leaves, and comes back. The partitions are created first, by a quorum of one voter, so that all is committed.
#
# Invariant: a log is written batch by batch, so that its length costs no memory.


PARTITIONS = 100
"""A multiple of `CHANGES_A_BATCH`."""
CHANGES_A_BATCH = 10
IDLE_MS = 500
START_MS = 1_795_388_400_000
"""The beginning of an hour; each hour begins with a snapshot of every partition."""
SEGMENT_BYTES = 64 << 20
_TOPIC = bytes(range(16))
_FULL, _SHRUNK = (1, 2, 3), (1, 2)
_NO_OP = bytes((1, 20, 0, 0))


def write_log(root: Path, records: int) -> Path:
    """The directory of a controller whose log has at least so many records behind those that create the partitions."""
    folder = root / "node1" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("node.id=1\ncluster.id=generated\n")
    file = None
    for offset, content in _batches(records):
        if file is None or file.tell() + len(content) > SEGMENT_BYTES:
            if file is not None:
                file.close()
            file = (folder / f"{offset:020}.log").open("wb")
        file.write(content)
    if file is not None:
        file.close()
    return folder.parent


def _batches(records: int) -> Iterator[tuple[int, bytes]]:
    yield 0, _voters()
    yield 1, _batch(1, START_MS, (_framed(12, 0, b"\x11metadata.version" + struct.pack(">h", 30) + b"\0"),))
    yield 2, _batch(2, START_MS, (_framed(2, 0, b"\x02t" + _TOPIC + b"\0"),))
    offset, at_ms = 3, START_MS
    for number in range(PARTITIONS):
        yield offset, _batch(offset, at_ms, (_partition(number),))
        offset += 1
    end, isr = offset + records, _SHRUNK
    place = 0
    while offset < end:
        for _ in range(CHANGES_A_BATCH):
            yield offset, _batch(offset, at_ms, (_NO_OP,))
            offset, at_ms = offset + 1, at_ms + IDLE_MS
        yield offset, _batch(offset, at_ms, [_change(place + each, isr) for each in range(CHANGES_A_BATCH)])
        offset, place = offset + CHANGES_A_BATCH, place + CHANGES_A_BATCH
        if place == PARTITIONS:
            place, isr = 0, _FULL if isr == _SHRUNK else _SHRUNK


def _framed(number: int, version: int, body: bytes) -> bytes:
    return bytes((1, number, version)) + body


def _ids(*values: int) -> bytes:
    return bytes((len(values) + 1,)) + b"".join(struct.pack(">i", value) for value in values)


def _partition(number: int) -> bytes:
    place = struct.pack(">i", number) + _TOPIC
    return _framed(3, 0, place + _ids(*_FULL) + _ids(*_FULL) + _ids() + _ids() + struct.pack(">iii", 1, 0, 0) + b"\0")


def _change(number: int, isr: tuple[int, ...]) -> bytes:
    value = _ids(*isr)
    return _framed(5, 0, struct.pack(">i", number) + _TOPIC + bytes((1, 0, len(value))) + value)


def _batch(offset: int, at_ms: int, values: list[bytes] | tuple[bytes, ...]) -> bytes:
    content = bytearray(encode_batch([NewRecord(None, value, at_ms) for value in values]))
    stamp(content, offset, 1)
    return bytes(content)


def _voters() -> bytes:
    said = b"\x02" + struct.pack(">i", 1) + b"\0"
    value = struct.pack(">hi", 0, 1) + said + said + b"\0"
    content = bytearray(encode_batch([NewRecord(struct.pack(">hh", 0, 2), value, START_MS)]))
    struct.pack_into(">h", content, 21, CONTROL_BIT)
    struct.pack_into(">I", content, 17, crc32c.crc32c(content[21:]))
    stamp(content, 0, 1)
    return bytes(content)


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
