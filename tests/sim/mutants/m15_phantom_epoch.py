"""15 and 16: epoch entries of a log in which nothing was written (TR14)."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.fetcher import Fetcher
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.truncation import EpochCache
from strandline.core.messages import FetchPartition
from strandline.core.types import Offset


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


MUTANTS = (
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
