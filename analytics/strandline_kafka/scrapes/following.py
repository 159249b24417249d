"""Turns log ends at scrapes into samples of the leader, within bounds; the metadata log gives the leaders (A29).

A scrape answers some time after the moment that it is recorded at, at most one period later. So what a leader answered
at its scrape at t was read in [t, t + period], and a follower's end then lies between what was scraped of it a period
before t or earlier, and a period after t or later, as long as nothing cut it: within one leader epoch. The sample has
the lower end; both lags that are possible are in ``ext``.

Invariant: a sample is of one leader epoch, from a period before it to a period after it. A LEO that no scrape of that
epoch says is null, and the high watermark always is, because Kafka does not export it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from strandline.core.state_events import ReplicaSample
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.export.destination import Destination
from strandline.export.rows import Row
from strandline.export.schema import OBSERVER
from strandline_kafka.collector.files import HEARTBEAT_US, Files, Rows
from strandline_kafka.collector.looks import NOT_GIVEN, Bounds, Sample
from strandline_kafka.metadata.state import ClusterState, Partition
from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.scrapes.series import Scrapes, Series

PROMETHEUS = "prometheus"
ROWS_AT_ONCE = 20_000
_PERIODS_TO_WAIT = 4
"""By then every scrape that may bound a look, and any change of leader that voids it, has passed."""


class _Look(NamedTuple):
    """A leader's answer about one partition, and the state at that moment."""

    topic: str
    partition: Partition
    leo: int
    expected: tuple[str, ...]
    """The expected series of each replica."""


class _Scrape(NamedTuple):
    """The looks of one scrape."""

    at_ms: int
    leader: NodeId
    looks: list[_Look]
    missed: int
    """Scrapes that failed before it."""


class _Term(NamedTuple):
    """The known period of a leader epoch, ms."""

    began_ms: int
    over_ms: int


class Before(NamedTuple):
    """The scrapes that a continued export already has; none of them is written twice."""

    until_ms: Mapping[int, int]
    """The last passed scrape of each broker."""
    scraped: int
    samples: int
    misplaced: int
    late: int
    voided: Counter[str]
    bounds: Bounds

    def has(self, node: int, at_ms: int) -> bool:
        """Whether a scrape is within the time that the export has."""
        return at_ms <= self.until_ms.get(node, max(self.until_ms.values(), default=-1))


NOTHING = Before({}, 0, 0, 0, 0, Counter(), Bounds())
"""The value for a new export."""


def read_before(said: Mapping[str, Any]) -> Before:
    """Read an export's description of its scrapes.

    Raises:
        Unreadable: it does not have their end.
    """
    try:
        own = said[PROMETHEUS]
        return Before(
            until_ms={int(node): int(at_ms) for node, at_ms in own["until_ms"].items()},
            scraped=int(own["scraped"]),
            samples=int(own["samples"]),
            misplaced=int(own["misplaced"]),
            late=int(own["late"]),
            voided=Counter({str(why): int(count) for why, count in own["voided"].items()}),
            bounds=Bounds(**{name: int(own["leo_bounds"][name]) for name in Bounds._fields}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable("the export does not say up to where it has scrapes; import into a new place") from error


class Following:
    """Follows the states of a metadata log, and writes the samples of the scrapes between them."""

    name = PROMETHEUS

    def __init__(
        self,
        scrapes: Scrapes,
        destination: Destination,
        cluster_id: str,
        window_us: tuple[int, int],
        before: Before = NOTHING,
    ) -> None:
        self._scrapes = scrapes
        self._before = before
        self._window_us = window_us
        self._period_ms = scrapes.period_ms()
        self._events = _moments(scrapes)
        self._next = next(self._events, None)
        first_ms = next((at_ms for at_ms, node in _moments(scrapes) if not before.has(node, at_ms)), 0)
        self._rows = Rows(cluster_id, first_ms, has_states=False)
        self._files = Files(destination, cluster_id)
        self._buffer: list[Row] = []
        self._waiting: deque[_Scrape] = deque()
        self._began: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Leader epochs and their starts, ms, rising."""
        self._scraped: dict[int, int] = {}
        """The last scrape of each broker."""
        self._count = 0
        self._beat_us = 0
        self._last_us = 0
        self.bounds = before.bounds
        self.samples = before.samples
        self.late = 0
        """Looks within the export's time at brokers of which it has no scrapes; they are not added."""
        self.voided = Counter(before.voided)
        self.misplaced: set[tuple[str, int, int]] = set()
        """Topic, partition and broker of logs that the metadata log places on other brokers."""

    def elected(self, partition: Partition, at_ms: int) -> None:
        """A leader epoch began."""
        self._began.setdefault(partition.tp, []).append((partition.leader_epoch, at_ms))

    def deleted(self, partition: Partition, at_ms: int) -> None:
        """Its last leader epoch ends: later scrapes under its name belong to another topic."""
        self._began.setdefault(partition.tp, []).append((partition.leader_epoch + 1, at_ms))

    def pass_until(self, now_ms: int, state: ClusterState) -> None:
        """Take everything that was scraped before a time, until which the state holds.

        Raises:
            OSError: the destination fails.
        """
        while self._next is not None and self._next[0] < now_ms:
            self._settle(self._next[0])
            self._look(*self._next, state)
            self._next = next(self._events, None)
        self._settle(now_ms)

    def end(self, now_ms: int, state: ClusterState) -> None:
        """The metadata log ends; the leaders of later scrapes are unknown.

        Raises:
            OSError: the destination fails.
        """
        self.pass_until(now_ms, state)
        while self._waiting:
            self._write(self._waiting.popleft(), now_ms)
        if self._last_us:
            self._buffer += self._rows.beat((self._last_us, self._last_us), is_final=True)
        self._flush()

    @property
    def rows(self) -> int:
        """The number of events written."""
        return self._files.rows

    @property
    def files(self) -> int:
        """The number of files."""
        return self._files.files

    def said(self) -> dict[str, object]:
        """The description in an export."""
        return {
            "nodes": sorted({*self._before.until_ms, *self._scrapes.by_node}),
            "scraped": self._before.scraped + self._new_samples(),
            "period_ms": self._period_ms,
            "until_ms": {str(node): at_ms for node, at_ms in sorted(self._until().items())},
            "samples": self.samples,
            "late": self._before.late + self.late,
            "misplaced": max(self._before.misplaced, len(self.misplaced)),
            "voided": dict(sorted(self.voided.items())),
            "leo_bounds": self.bounds._asdict(),
        }

    def _look(self, at_ms: int, node: int, state: ClusterState) -> None:
        """A broker's answers about the partitions that it leads."""
        looks: list[_Look] = []
        for (topic, index), series in self._scrapes.by_node[node].items():
            topic_id = state.ids.get(topic)
            partition = None if topic_id is None else state.partitions.get(TopicPartition(topic_id, index))
            if partition is not None and node not in partition.replicas:
                self.misplaced.add((topic, index, node))
            elif partition is not None and partition.leader == node and (leo := series.at(at_ms)) is not None:
                expected = tuple(_expected(replica, partition, state) for replica in partition.replicas)
                looks.append(_Look(topic, partition, leo, expected))
        before_ms = self._scraped.get(node, at_ms)
        self._scraped[node] = at_ms
        if self._before.has(node, at_ms):
            self.late += len(looks) if node not in self._before.until_ms else 0
        elif looks and self._window_us[0] <= at_ms * 1_000 < self._window_us[1]:
            missed = max(0, round((at_ms - before_ms) / self._period_ms) - 1)
            self._waiting.append(_Scrape(at_ms, NodeId(node), looks, missed))

    def _until(self) -> dict[int, int]:
        """The last passed scrape of each broker, now or before."""
        until = dict(self._before.until_ms)
        for node, at_ms in self._scraped.items():
            until[node] = max(at_ms, until.get(node, at_ms))
        return until

    def _new_samples(self) -> int:
        """The number of samples after the export's previous end, up to the last passed scrape."""
        return sum(
            at_ms <= self._scraped.get(node, -1) and not self._before.has(node, at_ms)
            for node, logs in self._scrapes.by_node.items()
            for series in logs.values()
            for at_ms in series.times
        )

    def _settle(self, now_ms: int) -> None:
        """Write the looks that are completely known."""
        while self._waiting and self._waiting[0].at_ms + _PERIODS_TO_WAIT * self._period_ms <= now_ms:
            self._write(self._waiting.popleft(), now_ms)

    def _write(self, scrape: _Scrape, known_ms: int) -> None:
        """Write the samples of a scrape; decisions are known up to ``known_ms``."""
        self._count += 1
        at_us = scrape.at_ms * 1_000
        if scrape.missed:
            self.voided["its leader was not scraped"] += scrape.missed * len(scrape.looks)
            self._rows.miss({scrape.leader: scrape.missed * sum(len(one.partition.replicas) for one in scrape.looks)})
        for look in scrape.looks:
            term = self._term(look.partition, known_ms)
            if scrape.at_ms < term.began_ms or scrape.at_ms + self._period_ms > term.over_ms:
                self.voided["its leader epoch began or ended meanwhile"] += 1
                self._rows.miss({scrape.leader: len(look.partition.replicas)})
                continue
            samples = list(self._samples(scrape, look, term))
            self.samples += len(samples)
            names = {look.partition.tp.topic_id: look.topic}
            self._buffer += self._rows.of_look(samples, names, (at_us, at_us))
            self._last_us = at_us
        if at_us - self._beat_us >= HEARTBEAT_US:
            self._beat_us = at_us
            self._buffer += self._rows.beat((at_us, at_us))
        if len(self._buffer) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self._files.write(self._buffer)
        self._buffer = []

    def _term(self, partition: Partition, known_ms: int) -> _Term:
        terms = self._began.get(partition.tp, [])
        place = bisect_left(terms, (int(partition.leader_epoch), 0))
        is_known = place < len(terms) and terms[place][0] == partition.leader_epoch
        # An epoch without a start is older than the log.
        began_ms = terms[place][1] if is_known else 0
        later = terms[place + is_known :]
        return _Term(began_ms, later[0][1] if later else known_ms)

    def _samples(self, scrape: _Scrape, look: _Look, term: _Term) -> Iterator[Sample]:
        partition = look.partition
        own = self._own(look, scrape.leader)
        for node, expected in zip(partition.replicas, look.expected, strict=True):
            ext = {OBSERVER: PROMETHEUS}
            low: int | None = look.leo
            if node != scrape.leader:
                place = look.topic, partition.tp.partition
                low, high = self._ends(self._scrapes.by_node.get(node, {}).get(place), scrape.at_ms, look.leo, term)
                if low is not None:
                    self.bounds = self.bounds.with_width(high - low)
                    ext |= {"lag_low": str(look.leo - high), "lag_high": str(look.leo - low)}
            leo = None if low is None else Offset(low)
            event = own._replace(replica_id=node, leo=leo, in_isr=node in partition.isr, expected_state=expected)
            yield Sample(scrape.leader, partition.tp, event, ext)

    def _ends(self, series: Series | None, at_ms: int, leader_leo: int, term: _Term) -> tuple[int | None, int]:
        """The bounds of a follower's log end when its leader's was read; None if no scrape gives them."""
        number = None if series is None else series.before(at_ms - self._period_ms)
        if series is None or number is None or series.times[number] < term.began_ms:
            return None, leader_leo
        low = min(series.ends[number], leader_leo)
        after = bisect_left(series.times, at_ms + self._period_ms)
        if after == len(series.times) or series.times[after] + self._period_ms > term.over_ms:
            return low, leader_leo
        return low, max(low, min(series.ends[after], leader_leo))

    def _own(self, look: _Look, leader: NodeId) -> ReplicaSample:
        """The common values of the samples of all replicas."""
        partition, none = look.partition, Offset(NOT_GIVEN)
        return ReplicaSample(
            sample_id=self._count,
            interval_ms=self._period_ms,
            replica_id=leader,
            leo=Offset(look.leo),
            durable_leo=None,
            leader_leo=Offset(look.leo),
            hw=none,
            acked_offset=none,
            log_start=none,
            leo_bytes=None,
            hw_bytes=None,
            hw_next_append_ms=None,
            last_fetch_ms=None,
            last_caught_up_ms=None,
            in_isr=True,
            in_maximal_isr=False,
            expected_state="member",
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
        )


def _moments(scrapes: Scrapes) -> Iterator[tuple[int, int]]:
    """The scrapes of all brokers, in order of time."""
    return iter(sorted((at, node) for node in scrapes.by_node for at in scrapes.times_of(node)))


def _expected(node: NodeId, partition: Partition, state: ClusterState) -> str:
    if node in partition.isr:
        return "member"
    broker = state.brokers.get(node)
    if broker is None or not broker.is_active:
        return "down"
    return "reassigning" if node in partition.adding else "catching_up"
