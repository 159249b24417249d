"""What a disk keeps after a kill, a power loss, a wipe."""

from __future__ import annotations

from strandline.core.types import BatchHeader, EpochEntry, LeaderEpoch, Offset, TopicPartition
from strandline_sim.world.disk import Disk, LogFile
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.memory_logs import MemoryLogs


def grown(*counts: int, epoch: int = 0, log: LogFile | None = None) -> LogFile:
    """A log with batches of this many records."""
    log = log or LogFile()
    for count in counts:
        log.append(BatchHeader(Offset(log.leo), epoch, count, 100, 0), 1, 1)
    return log


def test_power_loss_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    """The end after a power loss is a batch boundary, never below what was synced."""
    ends = set()
    for seed in range(60):
        log = grown(2, 3)
        log.begin_flush()
        log.end_flush()
        grown(1, 4, log=log)
        log.lose_power(Draw(seed, Purpose.DISK))
        ends.add(log.leo)

    assert ends == {5, 6, 10}


def test_a_commit_covers_what_was_written_when_it_was_issued() -> None:
    """Records appended or truncated while a commit is running are not covered by it."""
    log = grown(2, 3)
    log.begin_flush()
    grown(4, log=log)
    log.cut(2)
    log.end_flush()

    assert (log.leo, log.synced) == (2, 2)


def test_recovery_believes_batches_before_the_epoch_checkpoint() -> None:
    """Entries without a batch are removed, epochs without an entry added (M55); the tail is then durable (TR17)."""
    log = grown(2, 2)
    grown(1, epoch=3, log=log)
    log.epochs = (EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(5), Offset(5)))
    missed = log.recover()

    assert log.epochs == ((0, 0), (3, 4))
    assert (missed, log.synced) == (False, 5)


def test_what_was_not_synced_of_a_step_is_lost_as_a_whole() -> None:
    """The saves of a step are one frame of the journal: durable together, or not at all."""
    logs = MemoryLogs(Disk(1), lambda _: 0)
    kept, lost = TopicPartition("t", 0), TopicPartition("t", 1)
    logs.open(kept, "t")
    logs.save_epochs(kept, [EpochEntry(LeaderEpoch(1), Offset(0))])
    logs.save_reconciled_epochs({kept: LeaderEpoch(1)})
    logs.sync_saves()
    logs.open(lost, "t")
    logs.save_epochs(kept, [EpochEntry(LeaderEpoch(2), Offset(0))])
    logs.save_high_watermarks({kept: Offset(0)}, durable=True)
    logs.save_reconciled_epochs({kept: LeaderEpoch(2)})
    logs.delete(kept)
    logs.lose_saves()
    log = logs.disk.logs[kept]

    assert (log.epochs, log.reconciled, set(logs.disk.logs)) == (((1, 0),), 1, {kept})


def test_a_log_that_ends_below_its_checkpointed_high_watermark_is_missed() -> None:
    """A log that ends below its checkpointed HW makes its node register as unclean (M58)."""
    disk = Disk(1)
    log = disk.logs[TopicPartition("t", 0)] = grown(2, 2)
    log.hw_cached = log.hw_durable = 4
    log.cut(2)
    disk.recover(trusts_only_clean_stops=False)

    assert disk.is_unclean


def test_a_loss_that_was_reported_is_not_missed_again() -> None:
    """Once the controller registered the loss, the next start of the same log is clean, as with the services' disks."""
    disk = Disk(1)
    log = disk.logs[TopicPartition("t", 0)] = grown(2, 2)
    log.hw_cached = log.hw_durable = 4
    log.cut(2)
    disk.recover(trusts_only_clean_stops=False)
    disk.is_unclean = False
    disk.recover(trusts_only_clean_stops=False)

    assert not disk.is_unclean
    assert (log.hw_cached, log.hw_durable) == (2, 2)


def test_equal_hashes_mean_equal_logs() -> None:
    """Two logs with the same batches have the same hash at each end; another epoch or value changes all after it."""
    one, other = grown(1, 1, 1), grown(1, 1)
    same = one.hash_at(2) == other.hash_at(2)
    grown(1, epoch=1, log=other)

    assert same
    assert one.hash_at(3) != other.hash_at(3)
    assert one.hash_at(4) is None


def test_a_cut_within_a_batch_takes_the_whole_batch() -> None:
    """As in storage, the log ends at the boundary below the requested offset."""
    log = grown(2, 3)
    log.cut(4)

    assert (log.leo, log.synced) == (2, 0)


def test_a_log_that_lost_all_above_its_log_start_begins_anew_there() -> None:
    """As in storage, deleted data never comes back, and the node reports that records are missing."""
    log = grown(2, 3)
    log.begin_flush()
    log.end_flush()
    log.log_start = 4
    log.recovery_point = 5
    log.lose_from(2)
    missed = log.recover()

    assert missed
    assert (log.root, log.leo, log.headers) == (4, 4, [])
