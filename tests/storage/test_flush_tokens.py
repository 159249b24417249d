"""What a commit covers, and what a failed commit leaves to be written again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import current_thread
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from log_builder import append, open_files, read_all

from strandline.core.log.replica_log import DurablePoint
from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.disk import StorageFailed
from strandline.storage.layout import _removals
from strandline.storage.log import Log, LogSettings

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("append and commit"), st.integers(1, 6)),
        st.tuples(st.just("issue"), st.just(0)),
        st.tuples(st.just("finish"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("restart"), st.integers(0, 9)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 40)),
    ),
    min_size=4,
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS)
def test_what_counts_as_durable_survives_a_power_loss(power, tmp_path_factory, steps) -> None:
    """After a power loss at any time, everything below the durable point is there, and nothing that was truncated."""
    data = tmp_path_factory.mktemp("data")
    layout = LogSettings(segment_bytes=400, index_interval_bytes=100)
    checkpoints = Checkpoints.load(data)
    log, _ = Log.open(data / "t-0", settings=layout, checkpoints=checkpoints)
    durable = DurablePoint(log.leo)
    token, epoch = None, 1
    for step, argument in steps:
        if step.startswith("append"):
            append(log, *(b"%d/%d" % (log.leo + at, epoch) + b"." * 60 for at in range(argument)), epoch=epoch)
        if step == "append and commit" and token is None and durable.maybe_issue(log.leo):
            log.issue_flush().sync()
            durable.complete(log.leo)
        elif step == "issue" and token is None and durable.maybe_issue(log.leo):
            token = log.issue_flush()
        elif step == "finish" and token is not None:
            token.sync()
            durable.complete(token.leo_at_issue)
            token = None
        elif step == "truncate" and log.log_start_offset <= argument < log.leo:
            leo = log.truncate_to(Offset(argument))
            durable.truncated(leo)
            epoch += 1
        elif step == "restart":
            log.truncate_fully_and_start_at(Offset(log.leo + argument))
            durable.restarted(log.leo)
        elif step == "roll":
            log.roll()
        elif step == "advance" and argument <= durable.point:
            log.advance_log_start(Offset(argument))
            checkpoints.settle()
        power.restore(data, data / "after")
        survivor, recovery = Log.open(data / "after" / "t-0", settings=layout)

        assert survivor.leo >= durable.point
        assert survivor.log_start_offset == log.log_start_offset
        # A truncation is durable when it returns, so truncated data never comes back.
        kept = read_all(survivor)
        assert kept == read_all(log)[: len(kept)]
        assert not recovery.lost_durable_records
        survivor.close(clean=False)
        shutil.rmtree(data / "after")
    log.close(clean=False)
    checkpoints.close()
    power.forget()


def test_token_covers_rolled_segments_and_their_entries(power, log, build, fill) -> None:
    """One sync makes all segments of a long append durable, not only the active one."""
    fill(log, 60)
    token = log.issue_flush()
    token.sync()
    synced = {inode: len(content) for inode, content in power.files.items()}

    assert token.leo_at_issue == 120
    assert len(log.segments) > 2
    assert [synced[segment.path.stat().st_ino] for segment in log.segments] == [s.size_bytes for s in log.segments]
    assert set(power.folders[build.path.stat().st_ino]) >= {segment.path.name for segment in log.segments}


def test_finished_sync_leaves_no_work(log, fill) -> None:
    """Data that a finished sync covered needs no second sync."""
    fill(log, 60)
    log.issue_flush().sync()
    idle = log.issue_flush()
    fill(log, 1)
    busy = log.issue_flush()

    assert (idle.has_work, busy.has_work) == (False, True)


def test_unfinished_sync_counts_for_nothing(log, fill) -> None:
    """A second commit covers again what the first has not finished."""
    fill(log, 60)
    first = log.issue_flush()
    second = log.issue_flush()

    assert second.has_work
    second.sync()
    first.sync()


def test_append_during_a_sync_needs_another(log, fill) -> None:
    """Bytes written between issue and completion do not count as durable."""
    fill(log, 1)
    token = log.issue_flush()
    fill(log, 1)
    token.sync()
    next_token = log.issue_flush()

    assert token.leo_at_issue == 2
    assert next_token.has_work


def test_segments_may_vanish_while_a_worker_syncs(log, fill) -> None:
    """Truncation and deletion on the event-loop thread do not disturb a sync that was issued before."""
    fill(log, 100)
    token = log.issue_flush()
    log.truncate_fully_and_start_at(Offset(300))
    fill(log, 10)

    token.sync()
    assert token.done


def test_workers_sync_while_the_log_changes(log, build, fill, content) -> None:
    """Real threads sync while batches are appended, rolled, truncated and expired; nothing fails, nothing leaks."""
    before = open_files(log.directory)
    with ThreadPoolExecutor(2) as pool:
        running = []
        for turn in range(150):
            fill(log, 4, epoch=turn + 1)
            running.append(pool.submit(log.issue_flush().sync))
            if turn % 7 == 3:
                log.truncate_to(Offset(max(log.leo - 9, log.log_start_offset)))
            if turn % 11 == 5:
                log.advance_log_start(Offset(log.leo - 20))
        for sync in running:
            sync.result()
    log.issue_flush().sync()

    assert not log.issue_flush().has_work
    assert open_files(log.directory) == before + len(log.segments) - 1
    assert content(build.log()) == content(log)


def test_removed_segments_are_freed_in_a_thread(log, fill, monkeypatch) -> None:
    """Freeing a segment's blocks is slow, and the space is needed although nothing is appended any more."""
    fill(log, 60)
    threads, unlink = [], os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (threads.append((path.suffix, current_thread().name)), unlink(path)))
    log.advance_log_start(log.active_segment.base_offset)
    _removals().join()

    assert {name for suffix, name in threads if suffix == ".deleted"} == {"removals"}
    assert sorted(path.name for path in log.directory.glob("*.log*")) == [log.active_segment.path.name]
    assert open_files(log.directory) == len(log.segments)


def test_failed_sync_is_reported_and_not_retried(log, fill, monkeypatch) -> None:
    """EIO from fdatasync becomes StorageFailed with operation, path and errno; the token is not done."""
    fill(log, 1)
    token, fails = log.issue_flush(), Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(
        StorageFailed, match=r"fsync of .*\.log failed: Input/output error; the process stops"
    ) as failed:
        token.sync()

    assert (failed.value.errno, fails.call_count, token.done) == (errno.EIO, 1, False)


def test_a_log_may_be_set_aside_while_a_worker_syncs(log, build, fill) -> None:
    """A commit does not fail because the directory of its log has another name by then."""
    fill(log, 60)
    token = log.issue_flush()
    log.close(clean=False)
    build.path.rename(build.path.with_name("set aside"))
    token.sync()

    assert token.done


def test_failed_sync_of_a_directory_is_reported(log, fill, monkeypatch) -> None:
    """A directory that is there and cannot be synced fails the commit."""
    fill(log, 60)
    token = log.issue_flush()
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(StorageFailed, match=r"fsync of .* failed: Input/output error"):
        token.sync()


def test_failed_write_or_read_is_reported(build, log, fill, monkeypatch) -> None:
    """ENOSPC from an append, and EIO from a read of a running log or at recovery, become StorageFailed."""
    fill(log, 1)
    monkeypatch.setattr(os, "pread", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    monkeypatch.setattr(os, "pwritev", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))

    with pytest.raises(StorageFailed, match=r"write of .*\.log failed: No space left on device"):
        fill(log, 1)
    for read in (lambda: log.read(log.log_start_offset, 1, log.leo), build.recover):
        with pytest.raises(StorageFailed, match=r"read of .*\.log failed: Input/output error"):
            read()


def test_short_write_is_completed(log, fill, content, monkeypatch) -> None:
    """A partial write is continued, not lost."""
    real = os.pwritev

    def short(fd: int, buffers: list[bytes], position: int) -> int:
        return real(fd, [buffers[0]], position)

    monkeypatch.setattr(os, "pwritev", short)
    fill(log, 3)

    assert len(content(log)) == 3


# What a failed commit left behind is written again before it counts as durable.


@pytest.mark.parametrize("durable", [0, 3, 7])
def test_recovery_writes_the_tail_anew(build, log, fill, monkeypatch: pytest.MonkeyPatch, durable: int) -> None:
    """After a failed fsync pages may be clean but not on disk, so data above the durable point is written again.

    A sync alone would succeed and write nothing (Rebello et al., ATC 2020).
    """
    leo = fill(log, 10)
    log.note_durable(Offset(durable))
    log.checkpoints.recovery_points.save(durable=True)
    before = b"".join(path.read_bytes() for path in sorted(build.path.glob("*.log")))
    written: list[tuple[int, int]] = []
    write = os.pwritev

    def noted(fd: int, buffers: Sequence[bytes], position: int) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.suffix == ".log":
            written.append((position, position + sum(map(len, buffers))))
        return write(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", noted)
    again, recovery = build.recover()

    assert recovery.leo == leo
    assert b"".join(path.read_bytes() for path in sorted(build.path.glob("*.log"))) == before
    assert sum(end - start for start, end in written) == again.bytes_between(Offset(durable), leo)
