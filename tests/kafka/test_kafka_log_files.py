"""Segment files of metadata logs: damage, cut ends, and random bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline_kafka.metadata.log_files import Copy, open_copy, read_records
from strandline_kafka.metadata.wire import Unreadable

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


def test_a_segment_that_is_missing_between_two_is_named(run_a_node: Any, run_a_log: bytes) -> None:
    """Segments whose offsets do not follow each other are refused."""
    folder = segment_of(run_a_node(1)).parent
    (folder / "00000000000000009999.log").write_bytes(run_a_log)
    with pytest.raises(Unreadable, match="the batch at offset 0 must be at 1658; offsets are missing between"):
        count(open_copy(folder))


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    """A folder without segments is not taken for an empty log."""
    with pytest.raises(Unreadable, match="holds no metadata log"):
        open_copy(tmp_path)


@given(junk=st.binary(max_size=400), at=st.integers(0, 2000))
def test_random_bytes_are_records_or_a_sentence(tmp_path_factory: Any, run_a_log: bytes, junk: bytes, at: int) -> None:
    """Whatever a file holds behind sound batches, it is read or refused in one sentence; nothing else escapes."""
    folder = tmp_path_factory.mktemp("junk")
    path = folder / SEGMENT
    path.write_bytes(run_a_log[:at] + junk + run_a_log[at + len(junk) : 3000])
    refused = ""
    found = 0
    try:
        found = count(open_copy(folder))
    except Unreadable as error:
        refused = str(error)
    assert found < 100
    assert not refused or (str(path) in refused and "\n" not in refused)
