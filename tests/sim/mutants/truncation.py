"""Mutants of truncation and recovery: what a follower cuts, and what it must have stored before it is counted."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.effects import Effect
from strandline.core.log.fetcher import Fetcher
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NodeState
from strandline.core.log.truncation import AskedTruncation, EpochCache, FetchTruncation, FirstMove
from strandline.core.messages import FetchPartition
from strandline.core.types import EpochEnd, LeaderEpoch, Offset
from strandline_sim.world.disk import LogFile

MUTANTS: tuple[Mutant, ...] = ()


# R1: the rule of all releases before 0.11, inside the current rules.


def _cut_to_hw(real: Real, *_: Any) -> FirstMove:
    return FirstMove.CUT_TO_HW


MUTANTS += (
    Mutant(
        number="R1",
        name="truncate to the high watermark",
        broken="A follower cuts its log to its own high watermark when a new leader epoch begins, and asks nobody.",
        source="KIP-101, scenario 1; TR1",
        scenario="tr01_leader_epoch",
        swaps=(
            Swap(AskedTruncation, "first_move", _cut_to_hw),
            Swap(FetchTruncation, "first_move", _cut_to_hw),
        ),
    ),
)


# R2: the end of an epoch without the epoch that ends there.


def _end_alone(real: Real, cache: EpochCache, epoch: LeaderEpoch | None, leo: Offset) -> EpochEnd | None:
    found: EpochEnd | None = real(cache, epoch, leo)
    return None if found is None or epoch is None else EpochEnd(epoch, found.end_offset)


MUTANTS += (
    Mutant(
        number="R2",
        name="KIP-101 lookup",
        broken="Asked for an epoch that it never had, a leader answers as if it had had it: the end, not whose end.",
        source="KIP-279, KAFKA-6361; TR3",
        scenario="tr03_leader_epoch",
        swaps=(Swap(EpochCache, "end_offset_for", _end_alone),),
    ),
)


# 15 and 16: epoch entries of a log in which nothing was written (TR14).


def _phantom_stays(real: Real, cache: EpochCache, end_offset: Offset) -> bool:
    phantoms = [entry for entry in cache.entries if entry.start_offset == end_offset]
    changed: bool = real(cache, end_offset)
    if phantoms:
        real.differs()
        cache._entries += phantoms
    return changed


def _of_last_record(real: Real, fetcher: Fetcher, follower: FollowerReplica) -> FetchPartition:
    asked: FetchPartition = real(fetcher, follower)
    log = follower.log
    last = log.epochs.epoch_of(Offset(log.leo - 1)) if log.leo > log.log_start_offset else None
    return asked if asked.last_fetched_epoch is None else asked._replace(last_fetched_epoch=last)


MUTANTS += (
    Mutant(
        number="15",
        name="phantom epoch entry kept",
        broken="A truncation that cuts no record leaves the epochs in the cache in which nothing was written.",
        source="KAFKA-7415, KAFKA-10706; TR14",
        scenario="tr14_phantom_epoch",
        swaps=(Swap(EpochCache, "truncate_from_end", _phantom_stays, pure=False),),
    ),
    Mutant(
        number="16",
        name="Kafka's cache with the last record's epoch",
        broken="A fetch carries the epoch of the last record, while the cache follows Kafka's rule, made for its own.",
        source="TR14, the two variants mixed",
        scenario="m16_phantom_and_the_last_record",
        swaps=(Swap(Fetcher, "_fetch_partition", _of_last_record),),
    ),
)


# 17: recovery trusts the page cache.
# The rule belongs to recovery, not to the core, so it is swapped in the simulator's disk, which takes the place of
# `storage`.


def _without_sync(real: Real, log: LogFile, *given: Any, **named: Any) -> bool:
    synced = log.synced
    missed: bool = real(log, *given, **named)
    if synced < log.synced:
        real.differs()
        log.synced = synced
    return missed


MUTANTS += (
    Mutant(
        number="17",
        name="recovered tail not synced",
        broken="After a kill a log is handed over whose tail lies in the page cache, and it counts as durable.",
        source="TR17",
        scenario="m17_tail_of_the_page_cache",
        swaps=(Swap(LogFile, "recover", _without_sync, pure=False),),
    ),
)


# 104: the reconciled epoch, kept only in memory.


def _forgets(real: Real, self: NodeState, out: list[Effect]) -> None:
    if self.unsaved_reconciled:
        real.differs()
    self.unsaved_reconciled.clear()


MUTANTS += (
    Mutant(
        number="104",
        name="reconciled epoch not saved",
        broken="A replica is counted in an epoch that its disk does not know of.",
        source="M66",
        scenario="tr45_fork_and_reconciled_epoch",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(NodeState, "save_reconciled", _forgets, pure=False),),
    ),
)


# 105a, 105b: a follower counted before it stored the epoch, through its leader's fault or its own.


def _counts_at_once(real: Real, self: LeaderReplica, replica: Any) -> bool:
    if real(self, replica):
        real.differs()
    return False


def _agrees_unasked(real: Real, self: FollowerReplica) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="105a",
        name="first fetch of an epoch counted",
        broken="With truncation=fetch a follower is counted before it wrote down that it agrees with this leader.",
        source="M66",
        tests=("tests/core/test_leader_fetch.py",),
        swaps=(Swap(LeaderReplica, "only_reconciles", _counts_at_once, pure=False),),
    ),
    Mutant(
        number="105b",
        name="agreement written before the leader's answer",
        broken="A follower that asks by fetching writes down that it agrees before its leader answered.",
        source="M66",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(FollowerReplica, "agrees_before_fetching", _agrees_unasked),),
    ),
)
