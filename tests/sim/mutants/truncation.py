"""Mutants of truncation and recovery: what a follower cuts, and what it must have stored before it is counted."""

from __future__ import annotations

from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.core.log.effects import Effect
from strandline.core.log.fetcher import Fetcher
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NodeState
from strandline.core.log.truncation import AskedTruncation, EpochCache, FetchTruncation, FirstMove
from strandline.core.messages import FetchPartition
from strandline.core.types import EpochEnd, LeaderEpoch, Offset
from strandline_sim.world.disk import LogFile


def _cut_to_hw(real: Real, *_: Any) -> FirstMove:
    return FirstMove.CUT_TO_HW


MUTANTS += (
    Mutant(
        number="R1",
        name="truncate to the high watermark",
        broken="A follower cuts its log to its own high watermark when a new leader epoch begins, and asks nobody.",
        source="KIP-101, scenario 1; TR1",
        scenario="tr01_leader_epoch",
        swaps=(Swap(AskedTruncation, "first_move", _cut_to_hw), Swap(FetchTruncation, "first_move", _cut_to_hw)),
    ),
)


@mutant(EpochCache, "end_offset_for", "tr03_leader_epoch")
def _end_alone(real: Real, cache: EpochCache, epoch: LeaderEpoch | None, leo: Offset) -> EpochEnd | None:
    """R2: KIP-101 lookup (KIP-279, KAFKA-6361; TR3).

    Asked for an epoch that it never had, a leader answers as if it had had it: the end, not whose end.
    """
    found: EpochEnd | None = real(cache, epoch, leo)
    return None if found is None or epoch is None else EpochEnd(epoch, found.end_offset)


# 15 and 16: epoch entries of a log in which nothing was written (TR14).


@mutant(EpochCache, "truncate_from_end", "tr14_phantom_epoch", pure=False)
def _phantom_stays(real: Real, cache: EpochCache, end_offset: Offset) -> bool:
    """15: phantom epoch entry kept (KAFKA-7415, KAFKA-10706; TR14).

    A truncation that cuts no record leaves the epochs in the cache in which nothing was written.
    """
    phantoms = [entry for entry in cache.entries if entry.start_offset == end_offset]
    changed: bool = real(cache, end_offset)
    if phantoms:
        real.differs()
        cache._entries += phantoms
    return changed


@mutant(Fetcher, "_fetch_partition", "m16_phantom_and_the_last_record")
def _of_last_record(real: Real, fetcher: Fetcher, follower: FollowerReplica) -> FetchPartition:
    """16: Kafka's cache with the last record's epoch (TR14, the two variants mixed).

    A fetch carries the epoch of the last record, while the cache follows Kafka's rule, made for its own.
    """
    asked: FetchPartition = real(fetcher, follower)
    log = follower.log
    last = log.epochs.epoch_of(Offset(log.leo - 1)) if log.leo > log.log_start_offset else None
    return asked if asked.last_fetched_epoch is None else asked._replace(last_fetched_epoch=last)


# 17: recovery trusts the page cache.
# The rule belongs to recovery, not to the core, so it is swapped in the simulator's disk, which takes the place of
# `storage`.


@mutant(LogFile, "recover", "m17_tail_of_the_page_cache", pure=False)
def _without_sync(real: Real, log: LogFile, *given: Any, **named: Any) -> bool:
    """17: recovered tail not synced (TR17).

    After a kill a log is handed over whose tail lies in the page cache, and it counts as durable.
    """
    synced = log.synced
    missed: bool = real(log, *given, **named)
    if synced < log.synced:
        real.differs()
        log.synced = synced
    return missed


@mutant(
    NodeState,
    "save_reconciled",
    "tr45_fork_and_reconciled_epoch",
    tests="tests/core/test_replica_log_reports.py",
    pure=False,
)
def _forgets(real: Real, self: NodeState, out: list[Effect]) -> None:
    """104: reconciled epoch not saved (M66).

    A replica is counted in an epoch that its disk does not know of.
    """
    if self.unsaved_reconciled:
        real.differs()
    self.unsaved_reconciled.clear()


# 105a, 105b: a follower counted before it stored the epoch, through its leader's fault or its own.


@mutant(LeaderReplica, "only_reconciles", tests="tests/core/test_leader_fetch.py", pure=False)
def _counts_at_once(real: Real, self: LeaderReplica, replica: Any) -> bool:
    """105a: first fetch of an epoch counted (M66).

    With truncation=fetch a follower is counted before it wrote down that it agrees with this leader.
    """
    if real(self, replica):
        real.differs()
    return False


@mutant(FollowerReplica, "agrees_before_fetching", tests="tests/core/test_replica_log_reports.py")
def _agrees_unasked(real: Real, self: FollowerReplica) -> bool:
    """105b: agreement written before the leader's answer (M66).

    A follower that asks by fetching writes down that it agrees before its leader answered.
    """
    return True
