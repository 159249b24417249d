"""The parked fetches: until when they wait, what wakes them, and what each stream was last sent.

Invariant: a partition of a stream is in at most one parked fetch (naming it again replaces it); every
parked fetch leaves by bytes, error, deadline, replacement or its caller's going away, exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import FetchPartition, ReplicaState
from strandline.core.types import NEVER_MS, LeaderEpoch, Offset, TopicPartition


class News(NamedTuple):
    """What an answer without records can report, and in which reign: a follower keeps nothing sent in another."""

    leader_epoch: LeaderEpoch
    high_watermark: Offset | None
    log_start_offset: Offset | None


@dataclass(slots=True)
class ParkedFetch:
    """A fetch with the partitions that are still unanswered, in the order they were asked."""

    request_id: int
    replica: ReplicaState | None
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    deadline_ms: int
    stream_id: int | None
    at_follower: bool
    read_committed: bool
    partitions: dict[TopicPartition, FetchPartition]


@dataclass(slots=True)
class _Stream:
    """What one FetchStream has parked and was sent. ``reported``: from the last answer that was accepted."""

    parked: dict[TopicPartition, int] = field(default_factory=dict)
    reported: dict[TopicPartition, News] = field(default_factory=dict)


class ParkedFetches:
    """All parked fetches of a node, by partition, by deadline and by stream."""

    def __init__(self) -> None:
        self._parked: dict[int, ParkedFetch] = {}
        self._by_partition: dict[TopicPartition, dict[int, None]] = {}
        self._by_deadline: list[tuple[int, int]] = []
        self._streams: dict[int, _Stream] = {}
        self.woken: dict[int, dict[TopicPartition, None]] = {}
        """Fetches to look at again at the end of the step, with the partitions that woke them; changed here alone."""

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, fetch: ParkedFetch) -> None:
        """Hold a fetch; on a stream it replaces what was parked for the same partitions."""
        self._parked[fetch.request_id] = fetch
        heappush(self._by_deadline, (fetch.deadline_ms, fetch.request_id))
        for tp in fetch.partitions:
            self._by_partition.setdefault(tp, {})[fetch.request_id] = None
        if fetch.stream_id is not None:
            stream = self._streams.setdefault(fetch.stream_id, _Stream())
            for tp in fetch.partitions:
                stream.parked[tp] = fetch.request_id

    def replace(self, stream_id: int, tps: Iterable[TopicPartition]) -> list[ParkedFetch]:
        """End what is parked for these partitions, named again or no longer wanted; returns the emptied fetches."""
        stream = self._streams.get(stream_id)
        emptied: list[ParkedFetch] = []
        if stream is None or not stream.parked:
            return emptied
        for tp in tps:
            request_id = stream.parked.get(tp)
            if request_id is None:
                continue
            fetch = self._parked[request_id]
            self.remove(fetch, (tp,))
            if not fetch.partitions:
                emptied.append(fetch)
        return emptied

    def end_stream(self, stream_id: int) -> None:
        """The stream is gone: its fetches need no answer."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self.replace(stream_id, tuple(stream.parked))
            del self._streams[stream_id]

    def at(self, tp: TopicPartition) -> list[ParkedFetch]:
        """The fetches parked on ``tp``."""
        return [self._parked[i] for i in self._by_partition.get(tp, ())]

    def wake_replicas(self, tp: TopicPartition) -> None:
        """The log grew: replicas may have something to fetch."""
        for fetch in self.at(tp) if tp in self._by_partition else ():
            if fetch.replica is not None:
                self._wake(fetch, tp)

    def wake_consumers(self, log: ReplicaLog) -> None:
        """The HW moved: consumers may have something to read."""
        # Not replicas: they learn the HW with the next records or when their wait ends, and an answer for each step of
        # it would be one more fetch per commit (M22, KAFKA-9952). Nor readers of committed records at the LSO (X14).
        tp = log.tp
        for fetch in self.at(tp) if tp in self._by_partition else ():
            if fetch.replica is None and (not fetch.read_committed or fetch.partitions[tp].fetch_offset < log.lso):
                self._wake(fetch, tp)

    def wake_all(self, tp: TopicPartition) -> None:
        """The partition's leader changed, or the partition is gone: every waiting fetch must be answered (T15)."""
        for fetch in self.at(tp):
            self._wake(fetch, tp)

    def _wake(self, fetch: ParkedFetch, tp: TopicPartition) -> None:
        self.woken.setdefault(fetch.request_id, {})[tp] = None

    def take_woken(self) -> list[tuple[ParkedFetch, Iterable[TopicPartition]]]:
        """The fetches that were woken since this was asked last, each with the partitions that woke it."""
        if not self.woken:
            return []
        woken, self.woken = self.woken, {}
        return [(self._parked[i], tps) for i, tps in woken.items() if i in self._parked]

    def get(self, request_id: int) -> ParkedFetch | None:
        """The parked fetch of a call, if it still is parked."""
        return self._parked.get(request_id)

    def remove(self, fetch: ParkedFetch, tps: Iterable[TopicPartition]) -> None:
        """These partitions of ``fetch`` are answered or no longer wanted."""
        stream = self._streams.get(fetch.stream_id) if fetch.stream_id is not None else None
        for tp in tps:
            if fetch.partitions.pop(tp, None) is None:
                continue
            waiting = self._by_partition.get(tp)
            if waiting is not None:
                # A fetch that is answered on arrival was never parked.
                waiting.pop(fetch.request_id, None)
                if not waiting:
                    del self._by_partition[tp]
            if stream is not None and stream.parked.get(tp) == fetch.request_id:
                del stream.parked[tp]
        if not fetch.partitions:
            self._parked.pop(fetch.request_id, None)

    @property
    def next_deadline_ms(self) -> int:
        """The first deadline, also one of a call that is over since."""
        return self._by_deadline[0][0] if self._by_deadline else NEVER_MS

    def due(self, now_ms: int) -> list[ParkedFetch]:
        """The fetches whose wait is over. A stream's fetch that stays parked must be postponed."""
        due: list[ParkedFetch] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            deadline_ms, request_id = heappop(self._by_deadline)
            fetch = self._parked.get(request_id)
            if fetch is not None and fetch.deadline_ms == deadline_ms:
                due.append(fetch)
        return due

    def postpone(self, fetch: ParkedFetch, now_ms: int) -> None:
        """Nothing to send: wait for another ``max_wait_ms``."""
        fetch.deadline_ms = now_ms + max(1, fetch.max_wait_ms)
        heappush(self._by_deadline, (fetch.deadline_ms, fetch.request_id))

    def tell(self, stream_id: int, tp: TopicPartition, news: News | None) -> None:
        """Remember what an answer on this stream said; None if its receiver must ignore what it says (M32)."""
        reported = self._streams.setdefault(stream_id, _Stream()).reported
        if news is None:
            # Also the last answer about a partition that was deleted: a stream may outlive any number of them.
            reported.pop(tp, None)
        else:
            reported[tp] = news

    def forget(self, stream_id: int, tps: Iterable[TopicPartition]) -> None:
        """What was said of these partitions does not count any more: they are not wanted on the stream."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            for tp in tps:
                stream.reported.pop(tp, None)

    def reported_on(self, stream_id: int) -> Mapping[TopicPartition, News]:
        """What the last answer on this stream said of each partition."""
        stream = self._streams.get(stream_id)
        return stream.reported if stream is not None else {}

    def was_reported(self, stream_id: int, tp: TopicPartition, news: News | None) -> bool:
        """Whether the stream's last answer for ``tp`` already said this."""
        stream = self._streams.get(stream_id)
        return stream is not None and news is not None and stream.reported.get(tp) == news
