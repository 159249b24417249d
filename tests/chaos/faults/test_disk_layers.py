"""What a loss of power leaves of a file's bytes, in a model and in a mount."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.disk import Disk, disks_missing
from faults.disk_layers import PAGE_BYTES, StoredFile
from faults.disk_rules import Rule
from faults.disk_tree import Tree
from hypothesis import given, strategies as st


def _content(file: StoredFile) -> bytes:
    return file.read(1 << 20, 0)


def _synced(file: StoredFile) -> None:
    file.finish_sync(file.issue_sync())


def test_bytes_written_during_a_sync_are_not_covered_by_it(tmp_path: Path) -> None:
    """A sync covers what was written before it was issued."""
    file = StoredFile(tmp_path, 0o644)
    file.write(b"before", 0)
    issued = file.issue_sync()
    file.write(b"AFTER!", 0)
    file.finish_sync(issued)

    assert file.undo() == 6
    assert _content(file) == b"before"


def test_after_a_failed_sync_a_second_one_saves_nothing(tmp_path: Path) -> None:
    """The second fsync returns, the bytes are readable, and they are gone when the power goes (ATC 2020)."""
    file = StoredFile(tmp_path, 0o644)
    file.write(b"x" * PAGE_BYTES, 0)
    _synced(file)
    file.write(b"y" * PAGE_BYTES, PAGE_BYTES)
    file.fail_sync(file.issue_sync())
    file.write(b"z" * PAGE_BYTES, 2 * PAGE_BYTES)
    _synced(file)
    readable = _content(file)
    file.undo()

    assert readable == b"x" * PAGE_BYTES + b"y" * PAGE_BYTES + b"z" * PAGE_BYTES
    assert _content(file) == b"x" * PAGE_BYTES + b"\0" * PAGE_BYTES + b"z" * PAGE_BYTES


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "cut", "sync"]), st.integers(0, 20_000), st.integers(1, 6_000)), max_size=20
    )
)
def test_power_loss_restores_the_file_of_the_last_sync(steps: list[tuple[str, int, int]]) -> None:
    """For any writes, truncations and syncs, the loss of power leaves the bytes of the last sync."""
    file = StoredFile(Path("/tmp"), 0o644)
    durable = b""
    for number, (what, at, length) in enumerate(steps):
        if what == "write":
            file.write(bytes([number + 1]) * length, at)
        elif what == "cut":
            file.truncate(at)
        else:
            _synced(file)
            durable = _content(file)
    file.undo()

    assert _content(file) == durable


def test_a_torn_loss_keeps_whole_pages_of_old_or_new_content(tmp_path: Path) -> None:
    """With a draw a part of the unsynced pages survives, and nothing that was never written appears."""
    seen = set()
    for seed in range(40):
        file = StoredFile(tmp_path, 0o644)
        file.write(b"o" * 4 * PAGE_BYTES, 0)
        _synced(file)
        file.write(b"n" * 4 * PAGE_BYTES, 0)
        file.undo(random.Random(seed))
        pages = [_content(file)[at : at + PAGE_BYTES] for at in range(0, 4 * PAGE_BYTES, PAGE_BYTES)]
        seen.add("".join(chr(page[0]) for page in pages))

        assert all(len(set(page)) == 1 for page in pages)
    assert len(seen) > 5
    assert all(set(word) <= {"o", "n"} for word in seen)


def test_a_name_without_a_sync_of_its_folder_is_gone(tmp_path: Path) -> None:
    """Syncing a file does not make its name durable; syncing the folder does."""
    tree = Tree(tmp_path)
    kept, lost = tree.create("/kept", 0o644), tree.create("/also-kept", 0o644)
    tree.root.finish_sync(tree.root.issue_sync())
    lost = tree.create("/lost", 0o644)
    for file in (kept, lost):
        file.write(b"synced", 0)
        _synced(file)
    dropped = tree.lose_power()

    assert sorted(tree.root.entries) == ["also-kept", "kept"]
    assert dropped.names == 1
    assert _content(kept) == b"synced"


def test_a_rename_and_a_removal_without_a_sync_are_taken_back(tmp_path: Path) -> None:
    """The old file is there again under its name, with its old bytes, and so is the removed one."""
    tree = Tree(tmp_path)
    old, removed = tree.create("/checkpoint", 0o644), tree.create("/removed", 0o644)
    for file in (old, removed):
        file.write(b"old", 0)
        _synced(file)
    tree.root.finish_sync(tree.root.issue_sync())
    tree.create("/checkpoint.tmp", 0o644).write(b"new", 0)
    tree.rename("/checkpoint.tmp", "/checkpoint")
    tree.remove("/removed")
    tree.lose_power()

    assert tree.root.entries == {"checkpoint": old, "removed": removed}
    assert _content(old) == b"old"


# A faulty disk as processes use it: a mount whose power is cut, whose syncs fail, and which fills up.


_WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(1_000_000):
    os.pwrite(fd, b"%08d" % number, number * 8)
    os.fdatasync(fd)
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """One disk for the module."""
    if lacking := disks_missing():
        pytest.skip(f"FUSE: {lacking}")
    with Disk(tmp_path_factory.mktemp("mount") / "disk") as disk:
        yield disk


@pytest.fixture
def disk(mounted: Disk) -> Iterator[Disk]:
    """The disk without rules, and without unsynced data of other tests."""
    mounted.heal()
    mounted.cut_power()
    yield mounted
    mounted.heal()


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def _file(disk: Disk, name: str) -> int:
    fd = os.open(disk.mount_point / name, os.O_RDWR | os.O_CREAT)
    _sync_folder(disk.mount_point)
    return fd


def test_power_loss_drops_exactly_the_unsynced(disk: Disk) -> None:
    """Synced bytes are read again, others are gone, and the report has file and number of bytes."""
    fd = _file(disk, "a.log")
    os.pwrite(fd, b"synced", 0)
    os.fdatasync(fd)
    os.pwrite(fd, b"unsynced", 6)
    os.close(fd)
    (disk.mount_point / "never-synced").write_bytes(b"")
    cut = disk.cut_power()

    assert (disk.mount_point / "a.log").read_bytes() == b"synced"
    assert not (disk.mount_point / "never-synced").exists()
    assert cut.bytes_by_path["/a.log"] == 8
    assert cut.record_bytes == 8
    assert cut.names == 1


def test_a_process_learns_of_no_sync_that_did_not_last(disk: Disk) -> None:
    """A process that dies in a power loss has seen only syncs whose bytes are there afterwards."""
    disk.add(Rule(operation="fsync", delay_ms=3))
    path = disk.mount_point / "reported"
    _file(disk, "reported")
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 30:
                break
        cut = disk.cut_power([writer.pid])
        reported = [30, *map(int, writer.stdout.read().split())]
        assert writer.wait(10) == -9
    numbers = [int(path.read_bytes()[at : at + 8]) for at in range(0, path.stat().st_size, 8)]

    assert numbers == list(range(len(numbers)))
    assert max(reported) < len(numbers)
    assert cut.total_bytes in (0, 8)


def test_fsync_fails_once_and_saves_nothing_afterwards(disk: Disk) -> None:
    """EIO is reported once; a second fsync returns, is counted as a retry, and the bytes are lost with the power."""
    fd = _file(disk, "eio")
    disk.add(Rule(operation="fsync", paths="/eio", error="EIO", times=1))
    os.pwrite(fd, b"bytes", 0)
    before = disk.counts.get("fsyncs after a failed fsync", 0)
    with pytest.raises(OSError, match="Input/output") as failed:
        os.fsync(fd)
    os.fsync(fd)
    os.close(fd)

    assert failed.value.errno == errno.EIO
    assert (disk.mount_point / "eio").read_bytes() == b"bytes"
    assert disk.counts["fsyncs after a failed fsync"] == before + 1
    assert disk.hits == 1

    disk.cut_power()

    assert (disk.mount_point / "eio").read_bytes().strip(b"\0") == b""


def test_a_full_disk_takes_a_part_and_then_nothing(disk: Disk) -> None:
    """A write over the limit is partial, the next one gets ENOSPC, and statvfs reports that nothing is left."""
    fd = _file(disk, "full")
    disk.limit(disk.used_bytes + 6_000)
    taken = os.pwrite(fd, b"x" * 10_000, 0)
    with pytest.raises(OSError, match="No space") as failed:
        os.pwrite(fd, b"y", taken)
    space = os.statvfs(disk.mount_point)
    disk.heal()

    assert taken == 6_000
    assert failed.value.errno == errno.ENOSPC
    assert space.f_bavail == 0
    assert os.pwrite(fd, b"y", taken) == 1
    os.close(fd)


def test_a_slow_sync_holds_up_no_other_file(disk: Disk) -> None:
    """A delay applies to its own file only."""
    slow, quick = _file(disk, "slow"), _file(disk, "quick")
    disk.add(Rule(operation="fsync", paths="/slow", delay_ms=2_000))
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", f"import os; os.fsync({slow})"], pass_fds=[slow]) as waiting:
        os.pwrite(quick, b"q", 0)
        os.fsync(quick)
        quick_s = time.monotonic() - began
        assert waiting.wait(20) == 0
    slow_s = time.monotonic() - began
    os.close(slow)
    os.close(quick)

    assert disk.hits == 1
    assert slow_s >= 2 > quick_s


def test_write_fails_at_the_named_place(disk: Disk) -> None:
    """A rule applies to the operation, the name and the count that it states, and to nothing else."""
    fd, other = _file(disk, "b.log"), _file(disk, "b.index")
    disk.add(Rule(operation="write", paths="*.log", error="EIO", skip=1))
    os.pwrite(fd, b"first", 0)
    os.pwrite(other, b"index", 0)
    with pytest.raises(OSError, match="Input/output"):
        os.pwrite(fd, b"second", 5)
    os.close(fd)
    os.close(other)

    assert disk.hits == 1


def test_a_sqlite_store_in_wal_mode_lives_on_it(disk: Disk) -> None:
    """The controller's store works on the disk, with locks and shared memory, and keeps what it committed."""
    path = disk.mount_point / "metadata.sqlite"
    with sqlite3.connect(path) as store:
        assert store.execute("pragma journal_mode=wal").fetchone() == ("wal",)
        store.execute("pragma synchronous=full")
        store.execute("create table t (n)")
        store.execute("insert into t values (7)")
        store.commit()
        _sync_folder(disk.mount_point)
    store.close()
    disk.cut_power()
    with sqlite3.connect(path) as store:
        assert store.execute("select n from t").fetchall() == [(7,)]
    store.close()
