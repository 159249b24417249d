"""What remains of a log, and of its state files, after truncation, restart and expiry."""

from __future__ import annotations

import os
import struct
import time

import crc32c
import pytest

from strandline.core.types import LeaderEpoch, Offset, ProducerBatch
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.layout import remove_tree, retire_directories
from strandline.storage.producer_snapshot import begin_with_snapshot

NAME = ("t", 0)
HOUR_MS = 3_600_000


@pytest.mark.parametrize("cut", [0, 2, 30, 50, 98, 100, 200])
def test_truncation_keeps_exactly_the_prefix(log, fill, content, cut) -> None:
    """Everything below the truncation point is unchanged; appending continues from there."""
    fill(log, 50)
    before = content(log)
    leo = log.truncate_to(Offset(cut))

    assert leo == log.leo == min(cut, 100)
    assert content(log) == before[: cut // 2]
    fill(log, 3, epoch=2)
    assert content(log)[: leo // 2] == before[: cut // 2]
    assert log.leo == min(cut, 100) + 6


def test_cut_inside_a_batch_takes_the_batch(log, fill) -> None:
    """Half a batch cannot stay: the log ends before it, and returns that end."""
    fill(log, 4, records=5)

    assert log.truncate_to(Offset(13)) == 10


def test_truncation_survives_reopening(log, build, fill, content) -> None:
    """No index of the longer log affects the shorter one after it grew again."""
    fill(log, 40)
    log.close()
    log = build.recover(clean=True)[0]
    log.truncate_to(Offset(50))
    fill(log, 40, size_bytes=20, epoch=2)
    expected = content(log)
    again, recovery = build.recover()

    assert content(again) == expected
    assert recovery.bytes_cut == 0


def test_truncation_brings_high_watermark_and_recovery_point_down(log, build, fill) -> None:
    """A crash right after a truncation must not leave a HW or a durable point above the LEO (M41, M55)."""
    fill(log, 10)
    log.note_durable(log.leo)
    log.checkpoints.high_watermarks.put(NAME, Offset(18))
    log.checkpoints.high_watermarks.save()
    log.checkpoints.recovery_points.save()
    log.truncate_to(Offset(12))
    on_disk = Checkpoints.load(build.data)

    assert on_disk.high_watermarks.get(NAME) == 12
    assert on_disk.recovery_points.get(NAME) == 12
    assert not build.recover()[1].lost_durable_records


def test_truncation_drops_producer_snapshots_of_what_is_gone(log, build, fill) -> None:
    """A snapshot above the truncation point describes records that no longer exist (M61)."""
    fill(log, 10)
    row = ProducerBatch(5, 0, 0, 1, Offset(8), Offset(9), 1)
    log.save_producers(Offset(10), [row])
    log.save_producers(Offset(20), [row])
    log.truncate_to(Offset(14))

    assert [path.name for path in build.path.glob("*.snapshot")] == [f"{10:020}.snapshot"]


def test_restart_at_a_higher_log_start(log, build, fill) -> None:
    """A follower that fell behind the leader's log start restarts its log there, also after a crash (M30)."""
    fill(log, 30)
    log.truncate_fully_and_start_at(Offset(500))
    again = build.log()

    assert (log.log_start_offset, log.leo, log.size_bytes) == (500, 500, 0)
    assert (again.log_start_offset, again.leo) == (500, 500)
    assert fill(again, 1) == 502


ROW = ProducerBatch(5, 0, 0, 1, Offset(498), Offset(499), 1)


def test_a_restart_keeps_the_producer_state_below_it(log, build, fill) -> None:
    """C43: also after a crash, and nothing of what was remembered of the records that are gone."""
    fill(log, 30)
    log.save_producers(Offset(60), [ROW._replace(producer_id=6, first_offset=Offset(0), last_offset=Offset(1))])
    log.truncate_fully_and_start_at(Offset(500), [ROW])

    assert log.producers().rows() == (ROW,)
    assert build.log().producers().rows() == (ROW,)


def test_producer_state_of_a_start_that_was_not_kept_is_not_believed(log, build, fill) -> None:
    """C43: the process died between the two: the log is as it was, and the state says nothing of it."""
    fill(log, 30)
    begin_with_snapshot(build.path, Offset(500), [ROW], durable=True)
    again = build.log()

    assert (again.leo, again.producers().rows()) == (60, ())


def test_cut_below_the_log_start_begins_anew(log, fill) -> None:
    """A leader that lost more than this log keeps leaves nothing of it."""
    fill(log, 50)
    log.advance_log_start(Offset(80))
    log.truncate_to(Offset(20))

    assert (log.log_start_offset, log.leo) == (20, 20)


def test_log_start_removes_whole_segments_below_it(log, build, fill) -> None:
    """Segments are deleted only when no readable record is left in them; the start itself survives a crash."""
    fill(log, 60)
    borders = [segment.base_offset for segment in log.segments]
    log.advance_log_start(Offset(borders[2] + 4))

    assert [segment.base_offset for segment in log.segments] == borders[2:]
    assert build.log().log_start_offset == borders[2] + 4


def test_log_start_at_the_end_keeps_the_active_segment(log, build, fill) -> None:
    """Even an empty log has a segment to append to, and keeps its LEO."""
    fill(log, 60)
    log.advance_log_start(log.leo)
    again = build.log()

    assert (len(log.segments), again.log_start_offset, again.leo) == (1, 120, 120)


def test_log_start_never_passes_the_end(log, fill) -> None:
    """A log start above the LEO is a broken invariant, not a bad request."""
    fill(log, 1)

    with pytest.raises(AssertionError):
        log.advance_log_start(Offset(3))


def test_retention_by_size_keeps_at_least_the_size(build, fill) -> None:
    """Old segments are deleted while the rest still holds the bytes to keep; never above the HW."""
    log = build.log(retention_bytes=6_000, retention_ms=None)
    fill(log, 100)
    borders = [segment.base_offset for segment in log.segments]
    target = log.segments_expired(0, log.leo)

    assert target in borders
    assert log.bytes_between(target, log.leo) >= 6_000
    assert log.bytes_between(Offset(borders[borders.index(target) + 1]), log.leo) < 6_000
    assert log.segments_expired(0, Offset(borders[1])) == borders[1]
    assert log.segments_expired(0, Offset(borders[1] - 1)) is None


def test_retention_by_time_goes_by_the_newest_record(build, fill) -> None:
    """A segment expires when its newest record is too old; the active one never does."""
    log = build.log(retention_ms=1_000)
    fill(log, 60)
    first_newest = log.segments[0].max_timestamp_ms

    assert log.segments_expired(first_newest + 1_000, log.leo) is None
    assert log.segments_expired(first_newest + 1_001, log.leo) == log.segments[1].base_offset
    assert log.segments_expired(1 << 50, log.leo) == log.active_segment.base_offset


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 2**63 - 1])
def test_a_time_in_the_future_keeps_a_segment_only_where_the_topic_takes_it(build, fill, ahead_ms: int) -> None:
    """Further ahead than that, a segment is as old as its file; as far as it is taken, retention waits and says so."""
    log = build.log(retention_ms=1_000, timestamp_after_max_ms=ahead_ms)
    written_ms = time.time_ns() // 1_000_000
    fill(log, 60, start_ms=written_ms * 1_000)
    for segment in log.segments:
        os.utime(segment.path, ns=(0, written_ms * 1_000_000))
    waiting = log.retention_waits_until_ms(written_ms)

    if ahead_ms == HOUR_MS:
        assert waiting is None
        assert log.segments_expired(written_ms + 1_000, log.leo) is None
        assert log.segments_expired(written_ms + 1_001, log.leo) == log.active_segment.base_offset
    else:
        assert waiting == log.segments[0].max_timestamp_ms
        assert log.segments_expired(written_ms + 1_001, log.leo) is None


def test_retention_that_waits_for_nothing_says_nothing(build, fill) -> None:
    """A log of past times, one that keeps everything, and one whose only segment is active are not reported."""
    log = build.log(retention_ms=1_000)
    fill(log, 1)
    of_one_segment = log.retention_waits_until_ms(0)
    fill(log, 60)
    oldest_ms = log.segments[0].max_timestamp_ms
    log.close()
    endless = build.log(retention_ms=None)

    assert of_one_segment is None
    assert log.retention_waits_until_ms(oldest_ms - 1) == oldest_ms
    assert log.retention_waits_until_ms(oldest_ms) is None
    assert endless.retention_waits_until_ms(oldest_ms - 1) is None


def test_a_segment_without_times_does_not_expire_by_time(build, fill) -> None:
    """Nothing says how old its records are, so nothing is deleted for their age."""
    timeless = bytearray(encode_batch([NewRecord(None, bytes(100), 1)]))
    struct.pack_into(">qq", timeless, 27, -1, -1)
    struct.pack_into(">I", timeless, 17, crc32c.crc32c(bytes(timeless[21:])))
    log = build.log(retention_ms=1_000)
    for _ in range(60):
        log.append(split_batches(timeless), log.leo, LeaderEpoch(1))

    assert log.segments[0].max_timestamp_ms == -1
    assert log.segments_expired(1 << 50, log.leo) is None


def test_nothing_expires_without_limits(build, fill) -> None:
    """Without retention settings a log is kept for ever."""
    log = build.log(retention_ms=None)
    fill(log, 60)

    assert log.segments_expired(1 << 50, log.leo) is None


def test_deleted_log_leaves_nothing(log, build, fill) -> None:
    """Directory and checkpoint lines go; a new log of the same name begins at 0, regardless of the old one."""
    fill(log, 30)
    log.advance_log_start(Offset(9))
    log.note_durable(log.leo)
    log.checkpoints.recovery_points.save()
    log.forget()
    log.checkpoints.settle()
    remove_tree(retire_directories([log.directory])[0])
    again, recovery = build.recover()

    assert (again.log_start_offset, again.leo) == (0, 0)
    assert not recovery.lost_durable_records
