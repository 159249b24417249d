"""The decoder of metadata logs against Kafka's own: records, files, the text of kafka-dump-log, and damage."""

from __future__ import annotations

import lzma
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dump_comparison import compared
from run_a_files import RUN_A, metadata_log

from strandline_kafka.metadata.dump_log import open_dump
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import Copy, open_copy, read_records, snapshot_records
from strandline_kafka.metadata.records import MetadataRecord, decode_value
from strandline_kafka.metadata.wire import Unreadable

NO_OP = bytes((1, 20, 0, 0))


def read_all(directory: Path) -> list[MetadataRecord]:
    return [record for batch in open_copy(directory).batches() for record in read_records(batch)]


def test_every_record_is_what_kafka_dump_log_printed(run_a_node: Any) -> None:
    """Offset, time, kind, version and every field of 1,626 records agree with Kafka's own decoder."""
    text = lzma.decompress((RUN_A / "dump-log.txt.xz").read_bytes()).decode()
    assert compared(run_a_node(1), text) == 1626


def test_run_a_has_these_records(run_a_node: Any) -> None:
    """The log holds 1,658 records of 14 kinds, and not one that is unknown."""
    assert Counter(record.kind for record in read_all(run_a_node(1))) == {
        "NoOp": 1544,
        "PartitionChange": 54,
        "BrokerRegistrationChange": 20,
        "Partition": 7,
        "FeatureLevel": 6,
        "Config": 5,
        "RegisterBroker": 5,
        "RegisterController": 5,
        "Topic": 4,
        "ClearElr": 4,
        "LeaderChange": 1,
        "BeginTransaction": 1,
        "EndTransaction": 1,
        "RemoveTopic": 1,
    }


def test_the_offsets_are_dense(run_a_node: Any) -> None:
    """Every offset from 0 to 1,657 is read once, in order."""
    assert [record.offset for record in read_all(run_a_node(1))] == list(range(1658))


def test_a_snapshot_is_read_to_its_footer(run_a_node: Any) -> None:
    """A snapshot begins with its header and ends with its footer."""
    (snapshot,) = open_copy(run_a_node(3)).snapshots
    kinds = [record.kind for record in snapshot_records(snapshot)]
    assert (snapshot.end_offset, kinds[0], kinds[-1]) == (142, "SnapshotHeader", "SnapshotFooter")


def test_a_snapshot_that_was_cut_off_is_refused(run_a_node: Any) -> None:
    """A snapshot without its footer is not believed."""
    (snapshot,) = open_copy(run_a_node(3)).snapshots
    snapshot.path.write_bytes(snapshot.path.read_bytes()[:-40])
    with pytest.raises(Unreadable, match=r"the snapshot has no end; it was cut off at position \d+ of \d+"):
        list(snapshot_records(snapshot))


def test_a_kind_that_is_not_known_is_named_and_not_read() -> None:
    """A number without an entry in the table gives its number, and no kind."""
    assert decode_value(bytes((1, 99, 0, 1, 2, 3))) == (99, 0, None, {})


def test_a_version_above_the_newest_is_not_read() -> None:
    """A version that the table does not know gives no kind, however its bytes may look."""
    assert decode_value(bytes((1, 20, 7, 0))) == (20, 7, None, {})


def test_bytes_behind_the_fields_are_an_error() -> None:
    """A known version with something behind its fields is refused: the table would be wrong."""
    with pytest.raises(Unreadable, match="NoOp version 0 has 1 bytes more than its fields"):
        decode_value(NO_OP + b"\0")


def test_secrets_are_skipped_by_their_number() -> None:
    """Of a SCRAM credential nothing but the kind leaves the decoder."""
    assert decode_value(bytes((1, 11, 0)) + b"\x04salt") == (11, 0, "UserScramCredential", {})


def test_an_unknown_tagged_field_is_skipped() -> None:
    """A tag that a later release added does not hinder reading."""
    assert decode_value(bytes((1, 20, 0, 1, 42, 2, 0xAB, 0xCD)))[2] == "NoOp"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (bytes((1, 28, 0, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F)), "a field of 4294967293 bytes is declared where 0 bytes"),
        (bytes((1, 20, 0, 65)), "65 tagged fields are declared, at most 64 are read"),
        (bytes((1, 20, 0, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F)), "a field of 4294967295 bytes"),
        (bytes((2, 20, 0, 0)), "frame version 2 must be 1"),
        (bytes((0xFF,) * 6), "a number is longer than 5 bytes"),
        (b"", "the bytes end within a number"),
    ],
)
def test_a_declared_length_is_checked_before_it_is_believed(value: bytes, said: str) -> None:
    """Lengths and counts beyond the bytes that are there are refused in a sentence."""
    with pytest.raises(Unreadable, match=said):
        decode_value(value)


def test_a_huge_count_allocates_nothing() -> None:
    """An array that declares four thousand million ids costs no memory before it is refused."""
    head = bytes((1, 3, 2)) + bytes(4) + bytes(16)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="an array of 4294967293 elements is declared"):
            decode_value(head + bytes((0xFE, 0xFF, 0xFF, 0xFF, 0x0F)))
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


# Segment files of metadata logs: damage, cut ends, and random bytes.


SEGMENT = "00000000000000000000.log"


def count(copy: Copy) -> int:
    return sum(len(read_records(batch)) for batch in copy.batches())


def segment_of(root: Path) -> Path:
    return root / "__cluster_metadata-0" / SEGMENT


def test_one_flipped_byte_is_found_with_file_and_offset(run_a_node: Any) -> None:
    """A bad CRC in the middle is an error that names the file and the offset of its batch."""
    path = segment_of(run_a_node(1))
    content = bytearray(path.read_bytes())
    content[60_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=rf"{path}: position \d+, offset \d+: the CRC of the batch is wrong"):
        count(open_copy(path.parent))


@pytest.mark.parametrize("cut", [1, 30, 61, 75])
def test_a_file_that_ends_within_a_batch_ends_before_it(run_a_node: Any, cut: int) -> None:
    """What an active segment has not yet written whole is left out and counted in bytes."""
    path = segment_of(run_a_node(1))
    path.write_bytes(path.read_bytes()[:-cut])
    copy = open_copy(path.parent)
    found = count(copy)
    assert 0 < 1658 - found <= 4
    assert 0 <= copy.tail_bytes < 200


def test_zeros_at_the_end_end_the_file(run_a_node: Any) -> None:
    """A segment that was preallocated is read up to its zeros."""
    path = segment_of(run_a_node(1))
    path.write_bytes(path.read_bytes() + bytes(3_000_000))
    copy = open_copy(path.parent)
    assert (count(copy), copy.tail_bytes) == (1658, 3_000_000)


def test_something_behind_zeros_is_damage(run_a_node: Any) -> None:
    """Zeros in the middle are no end."""
    path = segment_of(run_a_node(1))
    path.write_bytes(path.read_bytes() + bytes(5000) + b"x")
    with pytest.raises(Unreadable, match="zeros, and something behind them"):
        count(open_copy(path.parent))


def test_a_declared_length_beyond_all_batches_is_damage(run_a_node: Any) -> None:
    """A length of two gigabytes is not taken for a batch that is still being written."""
    path = segment_of(run_a_node(1))
    path.write_bytes(path.read_bytes() + bytes(8) + b"\x7f\xff\xff\xff" + bytes(60))
    with pytest.raises(Unreadable, match="a batch of 2147483659 bytes is declared"):
        count(open_copy(path.parent))


def test_a_segment_that_is_missing_between_two_is_named(run_a_node: Any) -> None:
    """Segments whose offsets do not follow each other are refused."""
    folder = segment_of(run_a_node(1)).parent
    (folder / "00000000000000009999.log").write_bytes(metadata_log())
    with pytest.raises(Unreadable, match="the batch at offset 0 must be at 1658; offsets are missing between"):
        count(open_copy(folder))


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    """A folder without segments is not taken for an empty log."""
    with pytest.raises(Unreadable, match=r"holds no metadata log \(0{20}\.log and the like\)"):
        open_copy(tmp_path)


# The text of kafka-dump-log as a source.


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """What Kafka's tool printed of the log of run A."""
    path = tmp_path / "dump.txt"
    path.write_bytes(lzma.decompress((RUN_A / "dump-log.txt.xz").read_bytes()))
    return path


def test_the_text_alone_proves_nothing(text: Path, tmp_path: Path) -> None:
    """A text names no node, so that of three voters none is known to hold it."""
    assert Import([open_dump([text])], "c").result.proof.proved_end == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: [line.replace("isvalid: true", "isvalid: false") for line in lines],
            "line 3: Kafka's tool says",
        ),
        (lambda lines: lines[:5] + lines[7:], "the batch at offset 1 has 7 records of 9"),
        (lambda lines: [line.replace("payload: {", "payload: {{") for line in lines], "line 6, offset 1: Expecting"),
        (lambda lines: [line.replace(" payload: ", " ") for line in lines], "line 6 is not a record"),
        (lambda lines: lines[3:], "line 1 is a record in front of its batch"),
        (lambda lines: [line.replace('"isr":', '"rsi":') for line in lines], "Partition version 2 lacks isr"),
    ],
)
def test_a_text_that_is_not_whole_is_named(text: Path, tmp_path: Path, change: Any, said: str) -> None:
    """A batch that is not valid, missing records, or lines of another tool end the import with file and line."""
    text.write_text("".join(change(text.read_text().splitlines(keepends=True))))
    with pytest.raises(Unreadable, match=said) as refused:
        Import([open_dump([text])], "c", trust_tail=True)
    assert str(text) in str(refused.value)
