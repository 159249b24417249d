"""The small text files in Kafka's format: complete or damaged, never half-written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage.checkpoint_files import (
    CheckpointDamaged,
    OffsetCheckpoint,
    read_epochs,
    read_topic_id,
    write_epochs,
    write_topic_id,
)
from strandline.storage.checkpoints import Checkpoints

ENTRIES = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(7), Offset(120))]


def test_epoch_file_is_kafkas(tmp_path) -> None:
    """Version, count, then one epoch and start offset per line."""
    write_epochs(tmp_path, ENTRIES)

    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 120\n"
    assert read_epochs(tmp_path) == ENTRIES
    assert read_epochs(tmp_path / "none") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "1\n0\n",
        "0\n2\n0 0\n",
        "0\n1\n0 0\n7 120\n",
        "0\n1\n0 0",
        "0\n1\n0\n",
        "0\n1\n0 x\n",
        "0\n1\n-1 0\n",
        "0\n2\n7 0\n7 5\n",
        "0\n2\n1 5\n7 5\n",
        "0\n1\n0 99999999999999999999999\n",
    ],
)
def test_damaged_epoch_file_is_distinguished_from_a_missing_one(tmp_path, text) -> None:
    """A file of another format, or whose offsets do not increase, is damaged."""
    (tmp_path / "leader-epoch-checkpoint").write_text(text)

    with pytest.raises(CheckpointDamaged, match="leader-epoch-checkpoint is damaged"):
        read_epochs(tmp_path)


@given(st.binary(max_size=60))
def test_any_bytes_are_entries_or_damage(tmp_path_factory, content) -> None:
    """For any content of a checkpoint the result is entries or CheckpointDamaged."""
    folder = tmp_path_factory.mktemp("log")
    (folder / "leader-epoch-checkpoint").write_bytes(content)
    try:
        entries = read_epochs(folder)
    except CheckpointDamaged:
        entries = []

    assert entries == sorted(entries)


def test_offset_file_is_kafkas(tmp_path) -> None:
    """Version, count, then topic, partition and offset per line."""
    checkpoint = OffsetCheckpoint.load(tmp_path / "replication-offset-checkpoint")
    checkpoint.put(("orders", 1), Offset(5))
    checkpoint.put(("a.b_c-d", 0), Offset(77))
    checkpoint.save()

    assert checkpoint.path.read_text() == "0\n2\na.b_c-d 0 77\norders 1 5\n"
    assert OffsetCheckpoint.load(checkpoint.path).offsets == {("orders", 1): 5, ("a.b_c-d", 0): 77}


@pytest.mark.parametrize("content", [None, b"0\n1\norders 1\n", b"\xff\xfe", b"0\n2\norders 1 5\n"])
def test_missing_or_damaged_offsets_count_as_none(tmp_path, content) -> None:
    """An unreadable HW file counts as missing: every HW is 0 (M36)."""
    path = tmp_path / "replication-offset-checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = OffsetCheckpoint.load(path)

    assert checkpoint.offsets == {}
    assert checkpoint.damaged == (content is not None)


def test_forgotten_log_is_in_no_file(tmp_path) -> None:
    """A deleted log leaves no offset that could be taken for its successor's."""
    checkpoints = Checkpoints.load(tmp_path)
    for checkpoint in (checkpoints.high_watermarks, checkpoints.recovery_points, checkpoints.log_starts):
        checkpoint.put(("t", 0), Offset(9))
        checkpoint.put(("t", 1), Offset(8))
        checkpoint.save()
    checkpoints.forget(("t", 0))
    checkpoints.settle()
    again = Checkpoints.load(tmp_path)

    assert [c.offsets for c in (again.high_watermarks, again.recovery_points, again.log_starts)] == [
        {("t", 1): 8},
        {("t", 1): 8},
        {("t", 1): 8},
    ]


def test_topic_id_file_is_kafkas(tmp_path) -> None:
    """partition.metadata holds a version and the topic id, one per line."""
    write_topic_id(tmp_path, "0b4f-1")

    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: 0b4f-1\n"
    assert read_topic_id(tmp_path) == "0b4f-1"


def test_damaged_topic_id_is_reported(tmp_path) -> None:
    """A partition.metadata without an id names no topic."""
    (tmp_path / "partition.metadata").write_text("version: 0\n")

    with pytest.raises(CheckpointDamaged):
        read_topic_id(tmp_path)
