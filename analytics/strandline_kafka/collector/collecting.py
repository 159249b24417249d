"""Looks at a cluster repeatedly until it is stopped, and writes what it saw; the only part that waits.

Invariant: rows that wait for their destination are bounded, and every wait has a deadline. Every export
ends with a last row of each emitter, whatever ended it, unless its destination fails.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strandline.core.types import NodeId, TopicPartition
from strandline.export.destination import Destination
from strandline.export.layout import hour_of
from strandline.export.rows import Row
from strandline_kafka.collector import answers as collector_answers, connection as collector_connection, requests
from strandline_kafka.collector.cluster import UNKNOWN_TOPIC, Broker, ClusterSample, cluster_of
from strandline_kafka.collector.connection import Security
from strandline_kafka.collector.files import HEARTBEAT_US, Decisions, Files, Rows
from strandline_kafka.collector.links import BrokerLink, Links
from strandline_kafka.collector.looks import (
    Answers,
    Asked,
    Looks,
    Positions,
    rows_of_leaders,
    who_has_replicas,
    who_has_the_hw,
    who_may_have_more,
)
from strandline_kafka.collector.states import Pace, States, can_have_elr, usual_period_ms
from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.metadata.writing import METADATA_LOG

COLLECTOR = "collector"
"""The name of this source in an export."""
FLUSH_S = 60.0
"""The most time that a kill loses."""
MOST_ROWS = 50_000
"""The number of rows that are written at once, however new they are."""
MOST_WAITING = 8
"""The most batches that wait for a failing destination; then the collection ends."""
_SETTINGS_S = 60.0
_STARTS_S = 10.0
_REST = 100.0
"""The pause after reading a metadata log, as a multiple of the reading time: the whole log is read each time."""
_HOUR_US = 3_600_000_000
_PAGES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCollection:
    """What is to be collected. None: every topic; by the number of partitions; until it is stopped; as Kafka says."""

    topics: tuple[str, ...] | None = None
    period_ms: int | None = None
    for_s: float | None = None
    min_isr: int | None = None
    metadata_logs: tuple[Path, ...] = ()
    """Directories of controllers, whose decisions are exact, while looks see only states."""
    wait_s: float = 1.0
    """The time that a look waits for an answer, if the period is not longer."""


@dataclass(slots=True)
class Collected:
    """The results of a collection so far."""

    cluster_id: str
    nodes: set[NodeId] = field(default_factory=set)
    partitions: int = 0
    period_ms: int = 0
    looks: int = 0
    samples: int = 0
    rows: int = 0
    files: int = 0
    silent: tuple[NodeId, ...] = ()
    """Brokers that did not answer in the last look."""
    voided: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    first_us: int | None = None
    last_us: int | None = None


async def reach(
    bootstrap: Sequence[Broker], security: Security, topics: Sequence[str] | None
) -> tuple[collector_connection.Connection, Broker, ClusterSample]:
    """The first broker that answers, and the cluster that it shows.

    Raises:
        Refused: no broker can be asked, or a wanted topic does not exist.
        Unreachable: no broker answers.
    """
    failed: list[Exception] = []
    for broker in bootstrap:
        try:
            connection = await collector_connection.open_connection(broker.host, broker.port, security)
            cluster = await _first_look(connection, topics)
        except (collector_connection.Unreachable, collector_connection.Refused) as error:
            failed.append(error)
            continue
        return connection, broker, cluster
    raise next((each for each in failed if isinstance(each, collector_connection.Refused)), failed[-1])


async def _first_look(connection: collector_connection.Connection, topics: Sequence[str] | None) -> ClusterSample:
    try:
        cluster = cluster_of(
            collector_answers.read_metadata(await connection.ask(requests.METADATA, requests.metadata(topics)))
        )
    except collector_connection.Closed as error:
        connection.close()
        raise collector_connection.closed_at_once(connection.address, connection.security) from error
    except Unreadable as error:
        connection.close()
        raise collector_connection.Refused(f"{connection.address}: {error}") from error
    if topics is not None and cluster.refused:
        connection.close()
        topic, code = next(iter(cluster.refused.items()))
        why = "there is no such topic" if code == UNKNOWN_TOPIC else f"it is not shown (Kafka's error {code})"
        raise collector_connection.Refused(f"--topics: {topic}: {why}; name topics on which Describe is granted")
    return cluster


class Collection:
    """One collection; ``said`` is called after each look with the results so far."""

    def __init__(
        self,
        reached: tuple[collector_connection.Connection, Broker, ClusterSample],
        security: Security,
        destination: Destination,
        wanted: WantedCollection,
        said: Callable[[Collected], None] = lambda _: None,
    ) -> None:
        connection, address, self._cluster = reached
        self._wanted = wanted
        self._said = said
        self._links = Links(connection, address, security)
        self._files = Files(destination, self._cluster.cluster_id)
        partitions = len(self._cluster.partitions)
        self._pace = Pace(usual_period_ms(partitions) if wanted.period_ms is None else wanted.period_ms)
        self._looks, self._states = Looks(), States()
        began_ms = time.time_ns() // 1_000_000
        self._rows = Rows(self._cluster.cluster_id, began_ms)
        self._decisions = Decisions(
            wanted.metadata_logs, self._cluster.cluster_id, destination, began_ms * 1_000, wanted.min_isr
        )
        self._committed_below = 0
        """The quorum's high watermark as last reported by a broker; 0 if none was."""
        self._buffer: list[Row] = []
        self._waiting: deque[list[Row]] = deque()
        self._min_isr: dict[str, int] = {}
        self._known_topics: set[str] = set()
        """Topics whose settings were asked for."""
        self._elrs: dict[TopicPartition, frozenset[NodeId]] = {}
        self._starts: dict[collector_answers.TopicPartitionName, collector_answers.AnsweredOffset] = {}
        self._due: dict[str, float] = {}
        self._writing: asyncio.Task[None] | None = None
        self._hour: int | None = None
        self._beat_us = 0
        self.result = Collected(self._cluster.cluster_id)

    async def run(self, stop: asyncio.Event) -> Collected:
        """Look until ``stop`` is set, or for the wanted time.

        Raises:
            OSError: the destination failed for too long, or at the end.
        """
        began = time.monotonic()
        try:
            await asyncio.to_thread(self._files.describe, self._source(is_over=False))
            while not stop.is_set() and not self._is_over(began):
                at = time.monotonic()
                await self._look_unless(stop)
                self._said(self.result)
                await self._flush_if_due()
                rest_s = self._pace.period_ms / 1_000 - (time.monotonic() - at)
                await _heard(stop, max(0.0, rest_s))
        finally:
            await self._end()
        return self.result

    def _is_over(self, began: float) -> bool:
        return self._wanted.for_s is not None and time.monotonic() - began >= self._wanted.for_s

    async def _look_unless(self, stop: asyncio.Event) -> None:
        """One look, which is given up when ``stop`` is set: brokers that hang could make it long."""
        look, stopped = asyncio.create_task(self._look()), asyncio.create_task(stop.wait())
        await asyncio.wait({look, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if look.done():
            look.result()
        else:
            look.cancel()
            await asyncio.wait({look})

    async def _look(self) -> None:
        before = self._cluster
        for link in self._links.be_for(before.brokers):
            await link.close()
        await self._learn(before)
        hw1 = await self._ask_all(who_has_the_hw(before), requests.AS_CONSUMER, requests.LATEST)
        at = _now()
        ends = await self._ask_all(who_has_replicas(before), requests.AS_DEBUGGER, requests.LATEST)
        hw2 = await self._ask_all(who_may_have_more(before, hw1, ends), requests.AS_CONSUMER, requests.LATEST)
        after = await self._state()
        seen_at = _now()
        self._begin_hour(seen_at)
        if after is None:
            self._rows.miss_state()
            self._rows.miss(rows_of_leaders(before))
            self.result.voided["no broker showed the cluster's state"] += len(before.partitions)
        else:
            self._cluster = after
            self._take(Answers(before=before, hw1=hw1, ends=ends, hw2=hw2, after=after, log_starts=self._starts), at)
            self._report(after, seen_at)
        self._count(before, at)
        self._pace.after(self._links.longest_ms())

    def _take(self, answers: Answers, at: tuple[int, int]) -> None:
        if not self.result.looks:
            # The partition of a sample is known only from a state before it.
            self._report(answers.before, at)
        look = self._looks.take(answers, self._pace.period_ms)
        self._buffer += self._rows.of_look(look.samples, answers.before.topics, at)
        self._rows.miss(look.missed)
        self.result.samples += len(look.samples)
        self.result.voided += look.why

    def _report(self, cluster: ClusterSample, at: tuple[int, int]) -> None:
        least = {topic: self._wanted.min_isr for topic in cluster.topics.values() if self._wanted.min_isr is not None}
        changed = self._states.changed(cluster, self._elrs, {**least, **self._min_isr})
        self._buffer += self._rows.of_state(changed, at)

    def _count(self, before: ClusterSample, at: tuple[int, int]) -> None:
        result = self.result
        result.looks += 1
        result.partitions, result.period_ms = len(before.partitions), self._pace.period_ms
        result.nodes |= before.brokers.keys()
        result.silent = tuple(sorted(node for node in before.brokers if self._links.of(node).trouble is not None))
        result.first_us = at[0] if result.first_us is None else result.first_us
        result.last_us = at[0]
        for node in result.silent:
            self._note(self._links.of(node).trouble)
        for topic, error in before.refused.items():
            self._note(f"topic {topic} is not shown (Kafka's error {error}); Describe on it is needed")

    def _note(self, text: str | None) -> None:
        if text is not None and text not in self.result.notes and len(self.result.notes) < 100:
            self.result.notes.append(text)

    async def _ask_all(self, asked: Asked, replica: int, moment: int) -> dict[NodeId, Positions]:
        """Ask all brokers at the same time; those that do not answer are missing in the result."""

        async def ask(node: NodeId, partitions: Mapping[str, list[int]]) -> tuple[NodeId, Positions | None]:
            link = self._links.of(node)
            frame = await link.ask(
                requests.LIST_OFFSETS, requests.list_offsets(replica, moment, partitions), self._within_s
            )
            try:
                return node, None if frame is None else collector_answers.read_offsets(frame)
            except Unreadable as error:
                link.trouble = f"{link.broker.host}:{link.broker.port}: {error}"
                return node, None

        found = await asyncio.gather(*(ask(node, partitions) for node, partitions in asked.items()))
        return {node: positions for node, positions in found if positions is not None}

    @property
    def _within_s(self) -> float:
        return max(self._pace.period_ms / 1_000, self._wanted.wait_s)

    async def _state(self) -> ClusterSample | None:
        """The cluster as shown by the last used broker, or by the next one that answers; None if none answers."""
        for link in self._links.all():
            frame = await link.ask(requests.METADATA, requests.metadata(self._wanted.topics), self._within_s)
            if frame is None:
                continue
            try:
                cluster = cluster_of(collector_answers.read_metadata(frame))
            except Unreadable as error:
                link.trouble = str(error)
                continue
            if cluster.cluster_id != self._cluster.cluster_id:
                link.trouble = (
                    f"{link.broker.host}:{link.broker.port}: the broker is now of cluster {cluster.cluster_id}"
                )
                continue
            self._links.prefer(link)
            await self._learn_elrs(link, cluster)
            return cluster
        return None

    async def _learn(self, cluster: ClusterSample) -> None:
        """Ask for what changes rarely: settings, and the starts of logs."""
        if self._is_due("settings", _SETTINGS_S) or not self._known_topics >= {*cluster.topics.values()}:
            await self._learn_settings(cluster)
        if self._is_due("starts", _STARTS_S):
            found = await self._ask_all(who_has_the_hw(cluster), requests.AS_DEBUGGER, requests.EARLIEST)
            self._starts = {name: each for positions in found.values() for name, each in positions.items()}

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True

    async def _learn_settings(self, cluster: ClusterSample) -> None:
        topics = sorted({*cluster.topics.values()})
        self._known_topics = {*topics}
        link = self._links.all()[0]
        if not topics or not link.speaks(requests.DESCRIBE_CONFIGS):
            return
        frame = await link.ask(requests.DESCRIBE_CONFIGS, requests.describe_min_isr(topics), self._within_s)
        if frame is None:
            return
        try:
            found, errors = collector_answers.read_min_isr(frame)
        except Unreadable as error:
            self._note(f"min.insync.replicas could not be read: {error}")
            return
        self._min_isr = found
        for code in sorted(errors):
            self._note(
                f"min.insync.replicas of some topics is not shown (Kafka's error {code}); DescribeConfigs on them is "
                "needed, or --assume min.insync.replicas=N"
            )

    async def _learn_elrs(self, link: BrokerLink, cluster: ClusterSample) -> None:
        """Ask for the ELRs, only of topics that may have any, because the answer is large."""
        asked = sorted(
            {
                each.topic
                for tp, each in cluster.partitions.items()
                if tp in self._elrs or can_have_elr(each, self._min_isr.get(each.topic, self._wanted.min_isr))
            }
        )
        if not asked or not link.speaks(requests.DESCRIBE_TOPIC_PARTITIONS):
            return
        found: dict[TopicPartition, frozenset[NodeId]] = {}
        cursor: tuple[str, int] | None = None
        for _ in range(_PAGES):
            body = requests.describe_topic_partitions(asked, cursor)
            frame = await link.ask(requests.DESCRIBE_TOPIC_PARTITIONS, body, self._within_s)
            try:
                page = None if frame is None else collector_answers.read_elrs(frame)
            except Unreadable as error:
                link.trouble = str(error)
                page = None
            if page is None:
                return
            for (topic_id, index), nodes in page.elrs.items():
                if nodes:
                    found[TopicPartition(topic_id, index)] = frozenset(map(NodeId, nodes))
            cursor = page.next
            if cursor is None:
                break
        self._elrs = found

    def _begin_hour(self, at: tuple[int, int]) -> None:
        """Begin an hour with the state at its beginning."""
        hour = hour_of(at[0])
        if self._hour is not None and hour > self._hour:
            begin_us = hour * _HOUR_US
            self._buffer += self._rows.of_state(self._states.all(), (begin_us, at[1] - (at[0] - begin_us)))
        self._hour = hour
        if at[1] - self._beat_us >= HEARTBEAT_US:
            self._beat_us = at[1]
            self._buffer += self._rows.beat(at)

    async def _flush_if_due(self) -> None:
        if self._writing is not None:
            if not self._writing.done():
                return
            self._writing.result()
            self._writing = None
        if self._is_due("flush", FLUSH_S) or len(self._buffer) >= MOST_ROWS:
            await self._learn_committed()
            self._set_aside()
            self._writing = asyncio.create_task(self._write())

    def _set_aside(self) -> None:
        if self._buffer:
            self._waiting.append(self._buffer)
            self._buffer = []

    async def _write(self) -> None:
        """Write the waiting rows; those that fail are tried again with the next batch."""
        try:
            while self._waiting:
                await asyncio.to_thread(self._files.write, self._waiting[0])
                self._waiting.popleft()
            if self._is_due("decisions", 0.0):
                await self._decide()
            await asyncio.to_thread(self._files.describe, self._source(is_over=False))
        except OSError as error:
            self._note(f"--out: {error.strerror or error}; it is tried again")
            if len(self._waiting) >= MOST_WAITING:
                raise

    async def _learn_committed(self) -> None:
        """Ask up to which offset the metadata log is committed, between looks, whose questions use the same links."""
        if not self._wanted.metadata_logs:
            return
        link = self._links.all()[0]
        if link.is_connected and not link.speaks(requests.DESCRIBE_QUORUM):
            self._note(
                f"{link.broker.host}:{link.broker.port} does not say up to where the metadata log is committed "
                "(DescribeQuorum); only what a snapshot of the log contains is taken"
            )
            return
        frame = (
            await link.ask(requests.DESCRIBE_QUORUM, requests.describe_quorum(), self._within_s)
            if link.is_connected
            else None
        )
        if frame is None:
            return
        try:
            error, hw = collector_answers.read_quorum_hw(frame)
        except Unreadable as wrong:
            self._note(f"{link.broker.host}:{link.broker.port}: {wrong}")
            return
        if hw is not None:
            self._committed_below = hw
            return
        self._note(
            f"up to where the metadata log is committed is not shown (Kafka's error {error}); Describe on the "
            "cluster is needed, else only what a snapshot of the log contains is taken"
        )

    async def _decide(self) -> None:
        """Write the decisions of this time in a metadata log, as far as the quorum calls it committed."""
        if not self._wanted.metadata_logs:
            return
        try:
            began = time.monotonic()
            await asyncio.to_thread(self._decisions.take, self._committed_below)
            now = time.monotonic()
            self._due["decisions"] = now + _REST * (now - began)
        except Unreadable as wrong:
            self._note(f"--metadata-log: {wrong}")

    async def _end(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._links.all()[0].settle(self._within_s)
        await self._learn_committed()
        await self._decide()
        for link in self._links.all():
            await link.close()
        self._buffer += self._rows.beat(_now(), is_final=True)
        self._set_aside()
        while self._waiting:
            await asyncio.to_thread(self._files.write, self._waiting[0])
            self._waiting.popleft()
        await asyncio.to_thread(self._files.describe, self._source(is_over=True))
        self.result.rows = self._files.rows + self._decisions.rows
        self.result.files = self._files.files + self._decisions.files

    def _source(self, *, is_over: bool) -> dict[str, object]:
        """The description of the source in an export."""
        result, bounds, decisions = self.result, self._looks.bounds, self._decisions.source
        return {
            "source": "kafka",
            "levels": [COLLECTOR] if decisions is None else [METADATA_LOG, COLLECTOR],
            METADATA_LOG: decisions,
            "cluster_id": result.cluster_id,
            "nodes": sorted(result.nodes),
            "topics": None if self._wanted.topics is None else sorted(self._wanted.topics),
            "period_ms": self._pace.period_ms,
            "looks": result.looks,
            "first_us": result.first_us,
            "last_us": result.last_us,
            "is_over": is_over,
            "voided": dict(sorted(result.voided.items())),
            "hw_bounds": bounds._asdict(),
            "assumed": {"min.insync.replicas": self._wanted.min_isr},
        }


def _now() -> tuple[int, int]:
    """Time of day and monotonic time, us."""
    return time.time_ns() // 1_000, time.monotonic_ns() // 1_000


async def _heard(stop: asyncio.Event, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await stop.wait()
    except TimeoutError:
        return
