"""What opening a log reads, truncates, rebuilds and reports; the prefix that is left after any damage."""

from __future__ import annotations

import os

import pytest

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.disk import StorageDamaged

NAME = ("t", 0)


def last_segment(build):
    return max(build.path.glob("*.log"))


def test_clean_stop_reads_almost_nothing(build, fill, monkeypatch) -> None:
    """After a clean stop, opening reads a few headers per segment, however long the segments are."""
    log = build.log(segment_bytes=1 << 20, index_interval_bytes=4_096)
    fill(log, 400, size_bytes=5_000)
    log.save_epochs([EpochEntry(1, Offset(0))])
    log.checkpoints.settle()
    size_bytes = log.size_bytes
    log.close()
    read_bytes = []
    real = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        content = real(fd, size, position)
        read_bytes.append(len(content))
        return content

    monkeypatch.setattr(os, "pread", counted)
    again, recovery = build.recover(clean=True, segment_bytes=1 << 20, index_interval_bytes=4_096)

    assert (again.leo, recovery.bytes_checked, recovery.segments_rebuilt) == (800, 0, 0)
    assert sum(read_bytes) < size_bytes / 20


def test_unclean_stop_checks_from_the_recovery_point(log, build, fill) -> None:
    """CRCs are computed from the last known durable point on, not below it."""
    fill(log, 80)
    log.note_durable(Offset(120))
    log.checkpoints.recovery_points.save()
    recovery = build.recover()[1]

    assert recovery.bytes_checked == log.bytes_between(Offset(120), log.leo)
    assert (recovery.leo, recovery.was_clean, recovery.bytes_cut) == (160, False, 0)


def test_torn_tail_is_cut_and_counted(log, build, fill, content) -> None:
    """Half a batch at the end is removed; the report has its position and how many bytes."""
    fill(log, 50)
    before = content(log)
    path = last_segment(build)
    os.truncate(path, path.stat().st_size - 7)
    again, recovery = build.recover()

    assert content(again) == before[:-1]
    assert recovery.bytes_cut == len(before[-1]) - 7
    assert recovery.first_bad_file == path
    assert recovery.first_bad_position == path.stat().st_size
    assert recovery.leo == 98
    assert not recovery.lost_durable_records


def test_loss_below_the_durable_point_is_reported(log, build, fill) -> None:
    """A log that ends below its durable point, or below its HW, makes the node unclean (M58); also on a second open."""
    fill(log, 10)
    log.note_durable(log.leo)
    log.checkpoints.recovery_points.save()
    log.checkpoints.high_watermarks.put(NAME, Offset(18))
    log.checkpoints.high_watermarks.save()
    path = last_segment(build)
    os.truncate(path, path.stat().st_size - 1)
    first = build.recover()[1]
    second = build.recover()[1]

    assert (first.leo, first.ended_below_durable_point, first.ended_below_high_watermark) == (18, True, False)
    assert second.lost_durable_records


def test_damage_in_the_middle_takes_everything_behind_it(log, build, fill, content) -> None:
    """Records after a damaged batch cannot be kept: offsets must stay dense."""
    fill(log, 60)
    before = content(log)
    middle = log.segments[1]
    with open(middle.path, "r+b") as file:
        file.seek(middle.size_bytes // 2)
        file.write(b"\xff\xff\xff")
    again, recovery = build.recover()
    kept = content(again)

    assert kept == before[: len(kept)]
    assert middle.base_offset <= again.leo < middle.next_offset
    assert recovery.bytes_cut == sum(map(len, before)) - sum(map(len, kept))
    assert [path.name for path in sorted(build.path.glob("*.log"))] == [s.path.name for s in again.segments]


def test_recovered_tail_is_made_durable(log, build, fill, monkeypatch) -> None:
    """Data that a crash left in the page cache is synced before any other node can see it (TR17)."""
    fill(log, 40)
    synced = []
    real = os.fdatasync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", noted)
    build.recover()

    assert set(synced) >= {str(segment.path) for segment in log.segments}


def test_missing_indexes_are_rebuilt(log, build, fill, content) -> None:
    """Without index files the log is the same, and the report has how many were rebuilt."""
    fill(log, 60)
    before = content(log)
    log.close()
    for path in [*build.path.glob("*.index"), *build.path.glob("*.timeindex")]:
        path.unlink()
    again, recovery = build.recover(clean=True)

    assert content(again) == before
    assert recovery.segments_rebuilt == len(again.segments) - (again.active_segment.size_bytes <= 256)


def test_batches_win_over_the_epoch_file(log, build, fill) -> None:
    """A file that lacks the last epochs, or has an epoch without a batch, is corrected."""
    for epoch in (1, 4, 5):
        fill(log, 10, epoch=epoch)
    log.save_epochs([EpochEntry(1, Offset(0)), EpochEntry(4, Offset(20)), EpochEntry(9, Offset(60))])
    log.checkpoints.settle()
    recovery = build.recover()[1]

    assert recovery.epochs == (EpochEntry(1, Offset(0)), EpochEntry(4, Offset(20)), EpochEntry(5, Offset(40)))


@pytest.mark.parametrize("wrong", [98, 104, 112, 118])
def test_headers_above_the_recovery_point_win_over_the_epoch_file(build, fill, wrong: int) -> None:
    """The file names the right epochs with a wrong start, which the headers that are read anyway contradict."""
    log = build.log(segment_bytes=1 << 20)
    fill(log, 50, epoch=1)
    fill(log, 10, epoch=2)
    log.save_epochs([EpochEntry(1, Offset(0)), EpochEntry(2, Offset(wrong))])
    log.checkpoints.settle()
    log.note_durable(Offset(80))
    log.checkpoints.recovery_points.save()
    recovery = build.recover(segment_bytes=1 << 20)[1]

    assert recovery.bytes_checked < log.size_bytes
    assert recovery.epochs == (EpochEntry(1, Offset(0)), EpochEntry(2, Offset(100)))


@pytest.mark.parametrize("batches", range(1, 13))
def test_epochs_of_segments_that_need_no_reading_stay(build, fill, batches: int) -> None:
    """An older segment has headers after its last index entry, the newest may have no entry: their epochs count too."""
    log = build.log(segment_bytes=2_000, index_interval_bytes=300)
    fill(log, 30, epoch=1)
    begun = log.leo
    fill(log, batches, epoch=2)
    truth = (EpochEntry(LeaderEpoch(1), Offset(0)), EpochEntry(LeaderEpoch(2), begun))
    log.save_epochs(truth)
    log.checkpoints.settle()
    log.close()

    assert build.recover(clean=True, segment_bytes=2_000, index_interval_bytes=300)[1].epochs == truth
    assert build.recover(segment_bytes=2_000, index_interval_bytes=300)[1].epochs == truth


def test_epoch_entries_at_the_end_go(log, build, fill) -> None:
    """A leader's entry without a batch does not survive recovery, clean or not (M55)."""
    fill(log, 10, epoch=1)
    log.save_epochs([EpochEntry(1, Offset(0)), EpochEntry(2, Offset(20))])
    log.checkpoints.settle()
    log.close()

    assert build.recover(clean=True)[1].epochs == (EpochEntry(1, Offset(0)),)
    assert build.recover()[1].epochs == (EpochEntry(1, Offset(0)),)


def test_epochs_cut_by_recovery_go(log, build, fill) -> None:
    """Epochs whose batches were lost are dropped."""
    fill(log, 3, epoch=1)
    fill(log, 1, epoch=2)
    log.save_epochs([EpochEntry(1, Offset(0)), EpochEntry(2, Offset(6))])
    log.checkpoints.settle()
    path = last_segment(build)
    os.truncate(path, path.stat().st_size - 1)

    assert build.recover()[1].epochs == (EpochEntry(1, Offset(0)),)


def test_old_epochs_come_from_the_file(log, build, fill) -> None:
    """Below the recovery point the checkpoint is trusted, without reading its batches."""
    for epoch in (1, 4, 5):
        fill(log, 30, epoch=epoch)
    entries = [EpochEntry(1, Offset(0)), EpochEntry(4, Offset(60)), EpochEntry(5, Offset(120))]
    log.save_epochs(entries)
    log.note_durable(Offset(150))
    log.checkpoints.recovery_points.save()
    log.checkpoints.settle()
    recovery = build.recover()[1]

    assert (list(recovery.epochs), recovery.epochs_rebuilt) == (entries, False)
    assert Checkpoints.load(build.data).epochs_of(("t", 0)) == tuple(entries)


def test_flipped_bit_is_found_when_read(log, fill) -> None:
    """A batch that changed on disk is never returned; the exception names the file and the position."""
    fill(log, 30)
    segment = log.segments[0]
    with open(segment.path, "r+b") as file:
        file.seek(segment.size_bytes // 2 + 40)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(StorageDamaged, match="replicate it again from its peers") as damaged:
        log.read(Offset(0), 1 << 20, log.leo)
    assert damaged.value.path == segment.path


def test_damage_below_the_recovery_point_is_found_when_everything_is_checked(log, build, fill) -> None:
    """After damage was found in service the whole log is read, or the node would find it again."""
    fill(log, 60)
    log.note_durable(log.leo)
    log.checkpoints.recovery_points.save()
    path = log.segments[0].path
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"XXXX")
    trusting = build.recover()[1]
    thorough = build.recover(check_all=True)[1]

    assert trusting.leo == 120
    assert (thorough.leo, thorough.lost_durable_records) == (0, True)


def test_leftovers_of_a_crash_are_removed(log, build, fill) -> None:
    """Half-written files and indexes without a log are removed."""
    fill(log, 3)
    for name in ("leader-epoch-checkpoint.tmp", f"{99:020}.index", f"{99:020}.timeindex"):
        (build.path / name).write_bytes(b"x")
    build.recover()

    assert sorted(path.name for path in build.path.iterdir()) == [f"{0:020}.log"]


def test_producer_state_is_read_from_the_log(log, build) -> None:
    """Without a snapshot, or from an old one, the last five batches of each producer come from the headers (M61)."""
    for sequence in range(0, 16, 2):
        batch = encode_batch([NewRecord(None, b"v", 1)] * 2, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(split_batches(batch), log.leo, LeaderEpoch(1))
        if sequence == 6:
            log.save_producers(log.leo, log.producers().rows())
    rows = log.producers().rows()
    for path in build.path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    log.truncate_to(Offset(14))

    assert [(row.first_sequence, row.first_offset) for row in rows] == [(at, at) for at in (6, 8, 10, 12, 14)]
    assert [row.last_offset for row in log.producers().rows()] == [5, 7, 9, 11, 13]


@pytest.mark.parametrize("look", [lambda log: log.read(Offset(10), 1_000, log.leo), lambda log: list(log.batches())])
@pytest.mark.parametrize("kept", [0, 7, 61, 80])
def test_a_file_that_became_shorter_in_service_is_damage(build, fill, kept, look) -> None:
    """Wherever the file is cut, also within a header, every read or lookup after it reports damage."""
    log = build.log(segment_bytes=1 << 20, index_interval_bytes=1 << 20)
    fill(log, 20)
    third, _ = list(log.batches())[2]
    os.truncate(log.active_segment.path, third.position + kept)

    with pytest.raises(StorageDamaged):
        look(log)
