"""Descriptors follow what is in use: cold logs are closed, and nothing is lost or read from another file by that."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from log_builder import append, open_files as descriptors, read_all

from strandline.core.types import NodeId, Offset
from strandline.storage import open_files
from strandline.storage.directory import DataDirectory
from strandline.storage.disk import StorageFailed
from strandline.storage.log import Log, LogSettings
from strandline.storage.open_files import OpenFiles

PARTITIONS = 40
BOUND = 4


def logs_of(directory: Path, files: OpenFiles, count: int = PARTITIONS) -> list[Log]:
    """New logs of one data directory that share the bound on open files."""
    return [Log.open(directory / f"t-{n}", files=files, settings=LogSettings())[0] for n in range(count)]


def test_more_logs_than_descriptors_are_written_and_read(tmp_path: Path) -> None:
    """Appends, reads, rolls and cuts in any order touch the right file, with at most the bound open."""
    files = OpenFiles(BOUND)
    logs = logs_of(tmp_path, files)
    written: list[list[bytes]] = [[] for _ in logs]
    draws = random.Random(7)
    most = 0
    for step in range(600):
        at = draws.randrange(len(logs))
        deed = draws.random()
        if deed < 0.7:
            text = b"<%d:%d>" % (at, step)
            append(logs[at], text)
            written[at].append(text)
        elif deed < 0.8:
            logs[at].roll()
        elif deed < 0.9:
            keeps = draws.randint(0, len(written[at]))
            logs[at].truncate_to(Offset(keeps))
            del written[at][keeps:]
        else:
            token = logs[at].issue_flush()
            token.sync()
        most = max(most, descriptors(tmp_path, ".log"))

    assert most <= BOUND
    for at, log in enumerate(logs):
        assert re.findall(rb"<\d+:\d+>", b"".join(read_all(log))) == written[at]
        log.close()


def test_what_no_sync_covers_is_synced_before_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of writing back would be lost with the descriptor; a synced file is closed without a sync."""
    synced: list[str] = []
    monkeypatch.setattr(open_files, "sync_data", lambda fd, path: synced.append(path.parent.name))
    files = OpenFiles(2)
    first, second, third = logs_of(tmp_path, files, 3)
    append(first, b"unsynced")
    append(second, b"covered by a finished commit")
    second.issue_flush().sync()
    second.issue_flush()
    synced.clear()

    append(third, b"opens the third")
    append(third, b"first was used longest ago")
    second.read(Offset(0), 100, second.leo)
    third.read(Offset(0), 100, third.leo)
    first.read(Offset(0), 100, first.leo)

    assert synced == ["t-0"]
    for log in (first, second, third):
        log.close(clean=False)


def test_a_file_that_is_being_closed_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads run while a descriptor is closed; one that asks for the file then opens it again."""
    (tmp_path / "segment").touch()
    close, files, asked = os.close, OpenFiles(BOUND), []

    def closed_slowly(fd: int) -> None:
        monkeypatch.setattr(os, "close", close)
        asked.append((fd, segment()))
        close(fd)

    monkeypatch.setattr(os, "close", closed_slowly)
    segment = open_files.FileOf(files, tmp_path / "segment")
    files.forget(segment())
    ((closed, file),) = asked

    assert file.fd != closed
    assert os.path.samestat(os.fstat(file.fd), (tmp_path / "segment").stat())


def test_without_syncs_nothing_is_synced_before_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With durability=page-cache a busy log must not wait for the disk because others are busy too."""
    monkeypatch.setattr(open_files, "sync_data", lambda fd, path: pytest.fail("synced"))
    logs = logs_of(tmp_path, OpenFiles(1, syncs=False), 3)
    for log in logs:
        append(log, b"x")
    for log in logs:
        log.read(Offset(0), 100, log.leo)
        log.close(clean=False)


def test_a_sync_that_fails_when_a_file_is_closed_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a failed sync like any other (A3): `StorageFailed`, and no second one that would succeed."""
    first, second = logs_of(tmp_path, OpenFiles(1), 2)
    append(first, b"unsynced")
    monkeypatch.setattr(os, "fdatasync", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StorageFailed, match=r"fsync of .*t-0"):
        append(second, b"closes the first")


def test_a_commit_covers_a_log_whose_file_was_closed(tmp_path: Path) -> None:
    """A token issued before its file was closed, or for a segment without bytes, ends without an error."""
    files = OpenFiles(1)
    logs = logs_of(tmp_path, files, 5)
    tokens = [log.issue_flush() for log in logs]

    for token in tokens:
        token.sync()
    assert all(token.done for token in tokens)
    assert descriptors(tmp_path, ".log") <= 1


@contextmanager
def _limit(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_met_and_the_files_give_way(tmp_path: Path) -> None:
    """When sockets have taken all other descriptors, the oldest file is closed, and the log works on."""
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    files = OpenFiles(100)
    logs = logs_of(tmp_path, files, 6)
    for log in logs:
        append(log, b"x")
    with _limit(highest + 20):
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            files._used.popitem(last=False)
            os.close(taken.pop())
            taken.append(os.open("/dev/null", os.O_RDONLY))
            assert logs[0].read(Offset(0), 100, logs[0].leo).end == 1
        finally:
            for fd in taken:
                os.close(fd)


def test_half_of_the_limit_is_for_segments() -> None:
    """A node with a low hard limit leaves as many descriptors to connections as it uses itself."""
    with _limit(300):
        files = OpenFiles()

    assert files._at_most == 150


def test_a_disk_operation_without_a_descriptor_names_the_limit(tmp_path: Path) -> None:
    """The process ends with the line of a failed storage, which says what to raise."""
    failed = StorageFailed("open", tmp_path, OSError(errno.EMFILE, "Too many open files"))

    assert "raise its limit of open files (LimitNOFILE, ulimit -Hn)" in str(failed)
    assert "LimitNOFILE" not in str(StorageFailed("open", tmp_path, OSError(errno.ENOSPC, "No space left")))


def test_a_directory_with_more_logs_than_descriptors_is_opened(tmp_path: Path) -> None:
    """Recovery reads every log, several at once after a clean stop, and none fails for want of a descriptor."""
    script = f"""
import resource
from pathlib import Path
from strandline.core.types import NodeId
from strandline.storage.directory import DataDirectory
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
directory = DataDirectory.open(Path({str(tmp_path)!r}), node_id=NodeId(1))
logs = [directory.open_log("t", n, "11111111-0000-4000-8000-%012d" % n).log for n in range(150)]
directory.settle()
for token in [log.issue_flush() for log in logs]:
    token.sync()
for log in logs:
    log.close()
directory.close(clean=True)
"""
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")

    opened = DataDirectory.open(tmp_path, node_id=NodeId(1))
    assert len(opened.log_names()) == 150
    opened.close(clean=True)
