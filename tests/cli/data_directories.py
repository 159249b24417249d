"""Builders of data directories with real logs, for tests of commands that read files."""

from __future__ import annotations

from pathlib import Path

from strandline.core.types import EpochEntry, LeaderEpoch, NodeId, Offset
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.directory import DataDirectory

TOPIC_ID = "7f8a0c44-0000-4000-8000-000000000001"
NOW_MS = 1_700_000_000_000


def data_directory(
    path: Path, node_id: int, batches: list[list[bytes]], hw: int, topic_id: str = TOPIC_ID, *, killed: bool = False
) -> Path:
    """A node's data directory with one log of the given batches and saved HW.

    ``killed``: the checkpoint files do not hold them; the journal does.
    """
    directory = DataDirectory.open(path, node_id=NodeId(node_id))
    log = directory.open_log("orders", 0, topic_id).log
    for values in batches:
        encoded = encode_batch([NewRecord(key=None, value=value, timestamp_ms=NOW_MS) for value in values])
        log.append(split_batches(encoded), Offset(log.leo), LeaderEpoch(3))
    directory.checkpoints.high_watermarks.put(("orders", 0), Offset(hw))
    log.save_epochs([EpochEntry(LeaderEpoch(3), Offset(0))])
    if killed:
        directory.save_checkpoints()
        (path / "orders-0" / "partition.metadata").unlink()
    log.close(clean=not killed)
    directory.close(clean=not killed)
    return path
