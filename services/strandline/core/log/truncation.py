"""How a log is reconciled with its leader's: the first move, the question, the cut, the fence.

Invariant: only `leader-epoch` and `fetch` are safe, and only they are here. The historic rules are injected by the
simulator (`sim.historic_rules`), so that no server can run under them.

The five values are the table of PROTOCOL.md#leader-epochs-and-truncation; what the historic ones violate, and by
which shortest traces, is in RELIABILITY.md#exhaustive-search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from strandline.core.types import EpochEnd, EpochEntry, LeaderEpoch, Offset, Rules, Truncation

# ---- epochs
# Decides where an epoch ends, and from there where a returning follower cuts its log.
#
# Invariant: entries increase strictly in epoch and in start offset (I0); a leader's cache holds its own
# epoch from the moment it leads, written to or not (M35), so "which epoch wrote offset o" has one answer.
#
# Variant V2 of TR14, as Kafka: a fetch carries the *cache's* latest epoch, phantom entries included.


class EpochCache:
    """The (epoch, start offset) pairs of one log (M33). Kafka: LeaderEpochFileCache."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = list(entries)
        self._assert_increasing()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The newest epoch known, phantom or not; None if the cache is empty."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record where an epoch begins, unless that is known (M35). Returns whether anything changed."""
        last = self._entries[-1] if self._entries else None
        if last is not None and last.epoch == epoch and last.start_offset <= start_offset:
            return False
        # An entry that begins no lower is of a leader that wrote nothing up to here; kept, it would later cut committed
        # records (TR14).
        self._entries = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._entries.append(EpochEntry(epoch, start_offset))
        self._assert_increasing()
        return True

    def end_offset_for(self, epoch: LeaderEpoch | None, leo: Offset) -> EpochEnd | None:
        """Answer OffsetForLeaderEpoch (M37): the largest epoch <= ``epoch`` and its exclusive end; below the first
        known one (``epoch``, start of the first known). None is Kafka's (-1, -1): asked for no epoch, for one newer
        than any known, or nothing is known."""
        if epoch is None or not self._entries or epoch > self._entries[-1].epoch:
            return None
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, leo)
        following = bisect_right(self._entries, epoch, key=lambda e: e.epoch)
        end = self._entries[following].start_offset
        return EpochEnd(self._entries[following - 1].epoch if following else epoch, end)

    def epoch_of(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch that wrote the record at ``offset``; None before the first entry."""
        following = bisect_right(self._entries, offset, key=lambda e: e.start_offset)
        return self._entries[following - 1].epoch if following else None

    def knows(self, epoch: LeaderEpoch) -> bool:
        """Whether ``epoch`` has an entry of its own."""
        return any(e.epoch == epoch for e in self._entries)

    def is_before_first(self, epoch: LeaderEpoch) -> bool:
        """Whether ``epoch`` is older than all that is known: of where it began and ended nothing is left."""
        return bool(self._entries) and epoch < self._entries[0].epoch

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop entries that begin at or after ``end_offset``. Returns whether anything changed."""
        # Also when no record is cut: phantom epochs must go (M41, KAFKA-10706).
        kept = [e for e in self._entries if e.start_offset < end_offset]
        changed = len(kept) != len(self._entries)
        self._entries = kept
        return changed

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Forget what lies below ``start_offset``; the epoch that spans it now begins there."""
        below = [e for e in self._entries if e.start_offset <= start_offset]
        above = self._entries[len(below) :]
        if not below:
            return False
        kept = [EpochEntry(below[-1].epoch, start_offset), *above]
        changed = kept != self._entries
        self._entries = kept
        return changed

    def clear(self) -> None:
        """Forget everything: the log starts again, empty (M30)."""
        self._entries = []

    def _assert_increasing(self) -> None:
        for earlier, later in zip(self._entries, self._entries[1:], strict=False):
            assert earlier.epoch < later.epoch, f"I0: epochs not increasing: {self._entries}"
            assert earlier.start_offset < later.start_offset, f"I0: starts not increasing: {self._entries}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to cut, and whether the two logs are then known to agree (``settled``) or must be compared again."""

    offset: Offset
    settled: bool


def cut_for(cache: EpochCache, leo: Offset, answer: EpochEnd) -> Cut:
    """Where a follower cuts, given the leader's answer for an epoch, asked or found diverging (M38, KIP-279)."""
    if cache.latest_epoch is None:
        return Cut(min(answer.end_offset, leo), True)
    own = cache.end_offset_for(answer.epoch, leo)
    if own is None:
        # The leader speaks of an epoch newer than any of ours: everything we have lies before its end.
        return Cut(min(answer.end_offset, leo), True)
    if own.epoch == answer.epoch:
        # Known here, or older than the first entry: then `own` is (asked, start of the first entry).
        return Cut(min(answer.end_offset, own.end_offset, leo), True)
    # This log has no batch of the epoch that the leader named, and may differ from the leader's in older epochs too, so
    # one answer is not enough (KIP-279, TR3).
    return Cut(min(own.end_offset, leo), False)


class FirstMove(StrEnum):
    """What a follower does when it begins to follow a leader in a new leader epoch."""

    ASK = "ask"
    """Ask OffsetForLeaderEpoch before anything else."""
    CUT_TO_HW = "cut_to_hw"
    """Cut to the own high watermark, which travels one round late and so knows too little (M40)."""
    FETCH = "fetch"
    """Fetch from the own log end."""


class AskedTruncation:
    """`leader-epoch`: ask, fenced by the leader epoch, cut by both logs, and let every Fetch check again (KIP-320)."""

    fenced = True
    """Whether a replica's questions count only in the leader epoch they name (KIP-320)."""
    checked = True
    """Whether a Fetch carries the last fetched epoch and is answered by a divergence (KIP-595, M31)."""
    forgiving = False
    """Whether a cut below the own HW is done and reported instead of refused (M41)."""
    proves_members = True
    """Whether a process that started again has to show its log before it may be elected (M64)."""
    asks_first = True
    """Whether a follower knows that it agrees with its leader before its first Fetch (M66)."""

    def first_move(self, cache: EpochCache) -> FirstMove:
        """What to do first, given the own epochs; a log that knows none is empty, there is nothing to ask."""
        return FirstMove.ASK if cache.latest_epoch is not None else FirstMove.FETCH

    def cut(self, cache: EpochCache, leo: Offset, hw: Offset, answer: EpochEnd | None) -> Cut | None:
        """Where the answer to OffsetForLeaderEpoch says to cut (M38); None: nowhere, and the partition has failed.
        ``answer`` None is Kafka's (-1, -1), the leader knows nothing of the epoch. ``leo`` and ``hw`` are the own."""
        return None if answer is None else cut_for(cache, leo, answer)


class FetchTruncation(AskedTruncation):
    """`fetch`: no question at all; a divergence is found by the Fetch itself (Kafka since 2.7)."""

    asks_first = False

    def first_move(self, cache: EpochCache) -> FirstMove:
        """Fetch, whatever is known."""
        return FirstMove.FETCH


_STRATEGIES: dict[Truncation, AskedTruncation] = {
    Truncation.LEADER_EPOCH: AskedTruncation(),
    Truncation.FETCH: FetchTruncation(),
}
"""The strategies of production servers; stateless, shared by all partitions."""

HISTORIC = frozenset({Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK})
"""The values under which acknowledged records can be lost and replicas can differ permanently."""


def inject(strategies: Mapping[Truncation, AskedTruncation]) -> None:
    """Add strategies that are part of no server: the simulator brings the historic ones (`sim.historic_rules`)."""
    _STRATEGIES.update(strategies)


def rule_for(truncation: Truncation) -> AskedTruncation:
    """The strategy behind a value of the rule ``truncation``."""
    strategy = _STRATEGIES.get(truncation)
    assert strategy is not None, f"truncation={truncation} is a rule of history, which only the simulator has"
    return strategy


def historic_fault(rules: Rules) -> str | None:
    """Why no server may run under these rules; None if it may."""
    today = Rules(durability=rules.durability)
    if rules.truncation in HISTORIC:
        return f"truncation={rules.truncation} loses acknowledged records and lets replicas differ for ever; {_REMEDY}"
    if rules.fetch_hw is not today.fetch_hw or rules.isr_join is not today.isr_join:
        return f"fetch-hw={rules.fetch_hw} and isr-join={rules.isr_join} are rules of history; {_REMEDY}"
    return None


_REMEDY = (
    "servers run leader-epoch or fetch, with fetch-hw=snapshot and isr-join=caught-up: copy the records into a new "
    "cluster; `strandline scenario run` shows what the historic rules do"
)
