"""Checkpoint files in Kafka's format: complete or damaged, and written while logs come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage import checkpoint_files, completion
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.completion import Completion, LogFiles
from strandline.storage.disk import StorageFailed

ENTRIES = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(7), Offset(120))]


def test_epoch_file_is_kafkas(tmp_path) -> None:
    """Version, count, then one epoch and start offset per line."""
    content = checkpoint_files.epochs_content(ENTRIES)
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)

    assert content == b"0\n2\n0 0\n7 120\n"
    assert checkpoint_files.read_epochs(tmp_path) == ENTRIES
    assert checkpoint_files.read_epochs(tmp_path / "none") is None


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

    with pytest.raises(checkpoint_files.CheckpointDamaged, match="leader-epoch-checkpoint is damaged"):
        checkpoint_files.read_epochs(tmp_path)


def test_offset_file_is_kafkas(tmp_path) -> None:
    """Version, count, then topic, partition and offset per line."""
    checkpoint = checkpoint_files.OffsetCheckpoint.load(tmp_path / "replication-offset-checkpoint")
    checkpoint.put(("orders", 1), Offset(5))
    checkpoint.put(("a.b_c-d", 0), Offset(77))
    checkpoint.save()

    assert checkpoint.path.read_text() == "0\n2\na.b_c-d 0 77\norders 1 5\n"
    assert checkpoint_files.OffsetCheckpoint.load(checkpoint.path).offsets == {("orders", 1): 5, ("a.b_c-d", 0): 77}


@pytest.mark.parametrize("content", [None, b"0\n1\norders 1\n", b"\xff\xfe", b"0\n2\norders 1 5\n"])
def test_missing_or_damaged_offsets_count_as_none(tmp_path, content) -> None:
    """An unreadable HW file counts as missing: every HW is 0 (M36)."""
    path = tmp_path / "replication-offset-checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = checkpoint_files.OffsetCheckpoint.load(path)

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
    found = [c.offsets for c in (again.high_watermarks, again.recovery_points, again.log_starts)]

    assert found == [{("t", 1): 8}, {("t", 1): 8}, {("t", 1): 8}]


def test_topic_id_file_is_kafkas(tmp_path) -> None:
    """partition.metadata holds a version and the topic id, one per line."""
    checkpoint_files.write_topic_id(tmp_path, "0b4f-1")

    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: 0b4f-1\n"
    assert checkpoint_files.read_topic_id(tmp_path) == "0b4f-1"


def test_damaged_topic_id_is_reported(tmp_path) -> None:
    """A partition.metadata without an id names no topic."""
    (tmp_path / "partition.metadata").write_text("version: 0\n")

    with pytest.raises(checkpoint_files.CheckpointDamaged):
        checkpoint_files.read_topic_id(tmp_path)


# The checkpoint files are written in a thread while their logs may be deleted, set aside and made again.


NAME = ("t", 0)
FILES = LogFiles(topic_id="old", epochs=(EpochEntry(LeaderEpoch(3), Offset(0)),))


def one_log(data: Path) -> Completion:
    """A round that writes both files of t-0."""
    return Completion(data, 1, {}, None, {NAME: FILES})


@pytest.mark.parametrize("when", ["before", "written"])
def test_a_log_that_is_replaced_meanwhile_keeps_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The folder is renamed and another log takes its name: nothing of the old one is written into it."""
    (tmp_path / "t-0").mkdir()
    round_of_one = one_log(tmp_path)

    def replaced() -> None:
        if not (tmp_path / "old").exists():
            round_of_one.leave_out(NAME)
            (tmp_path / "t-0").rename(tmp_path / "old")
            (tmp_path / "t-0").mkdir()
            checkpoint_files.write_topic_id(tmp_path / "t-0", "new", durable=False)

    real = completion.write_file

    def write(*given: Any, **named: Any) -> None:
        real(*given, **named)
        replaced()

    monkeypatch.setattr(completion, "write_file", write)
    if when == "before":
        replaced()
    round_of_one.write(durable=True)

    assert "new" in (tmp_path / "t-0" / "partition.metadata").read_text()
    assert [path.name for path in (tmp_path / "t-0").iterdir()] == ["partition.metadata"]


def test_a_log_that_is_gone_is_no_failure_and_one_that_cannot_be_written_is(tmp_path: Path) -> None:
    """A missing folder is a deleted log; a file that cannot be written is a failing disk."""
    one_log(tmp_path).write(durable=True)
    (tmp_path / "t-0" / f"{checkpoint_files.EPOCHS_NAME}.completing.tmp").mkdir(parents=True)

    with pytest.raises(StorageFailed):
        one_log(tmp_path).write(durable=True)


def test_a_failure_in_the_thread_is_kept_for_the_loop(tmp_path: Path) -> None:
    """The next save raises it, and the process ends."""
    (tmp_path / "t-0" / f"{checkpoint_files.EPOCHS_NAME}.completing.tmp").mkdir(parents=True)
    failing = one_log(tmp_path)
    failing.start()
    failing.stop()

    assert failing.is_over
    assert isinstance(failing.error, StorageFailed)
    assert not failing.is_complete
