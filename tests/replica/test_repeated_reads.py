"""Two followers at the log end ask the same question one after the other; the disk answers it once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.core.errors import Refused
from strandline.core.log.effects import AdvanceLogStart, Append
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.records.batch import parse_header
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.directory import DataDirectory
from strandline.storage.log import Log, LogSettings

TP = TopicPartition("11111111-0000-4000-8000-000000000000", 0)
MAX_BYTES = 1 << 20


def append(logs: DirectoryLogs, at: int, value: bytes) -> None:
    """One batch with one record."""
    batch = encode_batch([NewRecord(None, value, 0)])
    logs.append(Append(TP, Offset(at), LeaderEpoch(0), parse_header(batch), memoryview(batch)))


def read(logs: DirectoryLogs, end: int) -> bytes:
    """Everything from offset 0 up to ``end``."""
    payload = logs.read(TP, Offset(0), Offset(end), MAX_BYTES, at_least_one=True).payload
    assert isinstance(payload, bytes)
    return payload


@pytest.fixture
def logs(tmp_path: Path) -> DirectoryLogs:
    """One open, empty log."""
    directory = DataDirectory.open(tmp_path, node_id=NodeId(1))
    found = DirectoryLogs(directory, LogSettings())
    found.open(TP, "t")
    return found


def test_the_same_question_is_read_from_disk_once(logs: DirectoryLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second follower gets the first one's bytes; a third reader's are read and checked again."""
    append(logs, 0, b"m0")
    reads: list[Offset] = []
    real = Log.read

    def counting(self: Log, start: Offset, *given: int, **named: bool) -> object:
        reads.append(start)
        return real(self, start, *given, **named)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Log, "read", counting)
    answers = [read(logs, 1) for _ in range(3)]

    assert len(set(answers)) == 1
    assert len(reads) == 2


def cut(logs: DirectoryLogs) -> None:
    """Truncate everything."""
    logs.truncate(TP, Offset(0), durable=False)


def restart(logs: DirectoryLogs) -> None:
    """Begin again, empty."""
    logs.restart(TP, Offset(0), ())


def delete_and_open(logs: DirectoryLogs) -> None:
    """The partition goes and comes back."""
    logs.delete(TP)
    logs.open(TP, "t")


@pytest.mark.parametrize("change", [cut, restart, delete_and_open])
def test_bytes_from_before_a_change_are_never_given_after_it(
    logs: DirectoryLogs, change: Callable[[DirectoryLogs], None]
) -> None:
    """The same question about other records, appended after a cut, a restart or a deletion, is answered with those."""
    append(logs, 0, b"m0")
    before = read(logs, 1)
    change(logs)
    append(logs, 0, b"n0")

    assert b"m0" in before
    assert b"n0" in read(logs, 1)


def test_deleted_records_are_not_given(logs: DirectoryLogs) -> None:
    """What lies below a log start that moved up is refused, although it was just read."""
    append(logs, 0, b"m0")
    read(logs, 1)
    logs.advance_log_start(AdvanceLogStart(TP, Offset(1)))

    with pytest.raises(Refused, match="outside 1"):
        read(logs, 1)
