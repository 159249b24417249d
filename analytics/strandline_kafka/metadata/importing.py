"""Imports the metadata logs of a Kafka cluster into an export in offset order, and notes what was left out and why.

Invariant: only what is proved to be committed becomes an event, and the replayed state equals every
snapshot that it passes, or the import fails. Nothing is written before the logs were read completely once.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from strandline.core.state_events import ClockSample, ControllerDecision, IsrChange, LeaderChange, NodeSession
from strandline.export.destination import Destination
from strandline.export.layout import KAFKA_SOURCE, cluster_folder, hour_of
from strandline.export.schema import INFERRED, START_OFFSET, START_SOURCE
from strandline_kafka.brokers.broker_events import BrokerStory
from strandline_kafka.brokers.broker_logs import BrokerLog
from strandline_kafka.brokers.checkpoints import EPOCHS_FILE, CheckpointChecks, Checkpoints
from strandline_kafka.brokers.learning import MIN_ISR, Learnt, learn, wanted_of
from strandline_kafka.brokers.text_files import LeftOut
from strandline_kafka.metadata import state as metadata_state
from strandline_kafka.metadata.events import HistoryEvent, causes_of, events_of, snapshot
from strandline_kafka.metadata.log_files import Copy, FoundBatch, SnapshotFile, snapshot_records
from strandline_kafka.metadata.merging import Kept, Proof, prove
from strandline_kafka.metadata.passage import EVERYTHING, Passage, PassageBatch, Silences, Window
from strandline_kafka.metadata.records import MetadataRecord
from strandline_kafka.metadata.replay import Listener, Replay
from strandline_kafka.metadata.skeleton import Learner
from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.metadata.writing import BROKER_LOGS, METADATA_LOG, Earlier, EventFiles

SESSION_TIMED_OUT = "session_timeout"
"""The cause of a fence that the controller's own log names."""
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOUR_US = 3_600_000_000
_DIFFERENCES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Settings that the log does not contain; the user gives them with ``--assume``."""

    min_isr: int | None = None
    lag_time_max_ms: int | None = None

    def said(self) -> dict[str, int | None]:
        """The settings as described in an export."""
        return {"min.insync.replicas": self.min_isr, "replica.lag.time.max.ms": self.lag_time_max_ms}


@dataclass(slots=True)
class Imported:
    """The result of an import: what was read, and what became of it."""

    cluster_id: str
    proof: Proof
    by_kind: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    repeated_registrations: int = 0
    unnamed_controllers: int = 0
    """Elections whose winner is not named in the text."""
    silences: int = 0
    snapshots_equal: int = 0
    dropped_of_transaction: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    metadata_version: int | None = None
    rows: int = 0
    files: int = 0
    last_seqs: dict[int, int] = field(default_factory=dict)
    end_crc: int = 0
    """CRC of the last batch, by which a later import finds its place again."""
    learnt: Learnt | None = None
    log_rows: dict[int, int] = field(default_factory=dict)
    """Events of each broker's logs."""
    findings: list[str] = field(default_factory=list)
    """Contradictions with the brokers' checkpoint files, as sentences."""
    left_out: dict[int, dict[str, LeftOut]] = field(default_factory=dict)
    """Lines for which no decision was found in the metadata log, by node and form."""

    @property
    def records(self) -> int:
        """The number of records taken into account."""
        return self.by_kind.total()


def cluster_of(copies: Sequence[Copy], given: str | None) -> str:
    """The id of the cluster to which all copies belong.

    Raises:
        Unreadable: they belong to several clusters, or none has the id.
    """
    found = {copy.cluster_id: copy for copy in copies if copy.cluster_id is not None}
    if given is not None:
        found.setdefault(given, copies[0])
    for name in found:
        # It becomes the name of a folder.
        if not _CLUSTER_ID.fullmatch(name):
            raise Unreadable(
                f"the cluster id {name!r:.80} must be letters, digits, _ and -; meta.properties has Kafka's"
            )
    if not found:
        raise Unreadable("no meta.properties beside the logs names the cluster; give --cluster-id")
    if len(found) > 1:
        several = ", ".join(sorted(map(str, found)))
        raise Unreadable(f"the logs are of several clusters: {several}; import each by itself")
    (cluster_id,) = found
    return str(cluster_id)


class Import:
    """One import; ``said`` is called now and then with the number of records read."""

    def __init__(
        self,
        copies: Sequence[Copy],
        cluster_id: str,
        *,
        assumed: Assumed = Assumed(),
        trust_tail: bool = False,
        logs: Sequence[BrokerLog] = (),
        checkpoints: Sequence[Checkpoints] = (),
        window: Window = EVERYTHING,
        earlier: Earlier | None = None,
        committed_below: int = 0,
        said: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._copies = copies
        self._assumed = assumed
        self._earlier = earlier
        self._logs = logs
        self._checkpoints, self._checks = checkpoints, CheckpointChecks(checkpoints)
        self._window = window
        self._is_open = not window.has_start
        self._clock_samples: dict[int, HistoryEvent] = {}
        self._said = said
        self._kept = Kept()
        self._learner = Learner(copies, self._kept, wanted_of(logs))
        proof = prove(copies, self._kept, self._learner, trust_tail=trust_tail, committed_below=committed_below)
        self.result = Imported(cluster_id, proof)
        self._state = metadata_state.ClusterState(min_isr_assumed=assumed.min_isr)
        self._replay = Replay(self._state)
        self._silences = Silences()
        self._hour: int | None = None
        self._seen = 0
        self._epoch: int | None = None
        self._last: MetadataRecord | None = None
        self._snapshots: deque[SnapshotFile] = deque()
        self._samples: deque[tuple[int, HistoryEvent]] = deque()
        self._listener: Listener | None = None

    def write(self, destination: Destination, listener: Listener | None = None) -> Imported:
        """Write the export of everything that is proved, with its source.

        Args:
            listener: another source, which writes events of its own between them.

        Raises:
            Unreadable: the log contradicts itself or a snapshot, or is of an unsupported cluster.
            OSError: the destination fails.
        """
        result = self.write_events(destination, listener)
        said = json.dumps(self.source(), indent=2) + "\n"
        destination.put(f"{cluster_folder(result.cluster_id)}/{KAFKA_SOURCE}", said.encode())
        return result

    def write_events(self, destination: Destination, listener: Listener | None = None) -> Imported:
        """Write only the events.

        Raises:
            Unreadable: as `write`.
            OSError: the destination fails.
        """
        result, self._listener = self.result, listener
        result.learnt = learnt = learn(self._learner.skeleton(result.proof), self._logs, self._assumed.lag_time_max_ms)
        if self._assumed.min_isr is None:
            self._state.min_isr_assumed = learnt.settings.get(MIN_ISR)
        self._samples = deque(learnt.samples)
        seqs = None if self._earlier is None else self._earlier.last_seqs
        files = EventFiles(destination, result.cluster_id, self._state.name_of, window=self._window, last_seqs=seqs)
        passage = Passage(self._copies, self._kept, result.proof)
        self._state.is_whole = passage.is_whole
        self._snapshots = deque(passage.checks())
        began = passage.start is None
        for number, taken in enumerate(passage.batches()):
            if self._earlier is not None:
                self._earlier.check(taken.batch, is_first=number == 0)
                files.is_silent = taken.batch.offset < self._earlier.end_offset
            if not began and passage.start is not None:
                began = True
                self._from_snapshot(passage.start, files, taken.batch)
            self._take(taken, files)
            result.end_crc = taken.batch.header.crc
        result.dropped_of_transaction = passage.dropped
        files.end(at_us=None if self._last is None else self._last.timestamp_ms * 1_000)
        result.rows, result.files, result.last_seqs = files.rows, files.files, files.last_seqs
        if listener is not None and self._last is not None:
            listener.end(self._last.timestamp_ms, self._state)
            result.rows, result.files = result.rows + listener.rows, result.files + listener.files
        for log in self._logs:
            self._write_broker(log, learnt, destination)
        result.findings = list(self._checks.findings(self._state))
        result.metadata_version = self._state.features.get("metadata.version")
        return result

    def _from_snapshot(self, start: SnapshotFile, files: EventFiles, first: FoundBatch) -> None:
        at_ms = self._replay.load(snapshot_records(start))
        if at_ms is None:
            raise Unreadable(f"{start.path}: the snapshot has no header, which says of when it is")
        at_us = at_ms * 1_000
        self._begin(files, first.header.stamped_epoch, at_us)
        for reported in self._states(start.end_offset - 1):
            files.add(at_us, reported)

    def _take(self, taken: PassageBatch, files: EventFiles) -> None:
        if not files.is_silent:
            for record in taken.read:
                self._count(record)
        self._perform(taken.batch, taken.ready, files)
        self._check(taken.batch.header.next_offset)

    def _count(self, record: MetadataRecord) -> None:
        result = self.result
        result.by_kind[record.kind or f"unknown {record.number}"] += 1
        if result.first_ms is None:
            result.first_ms = record.timestamp_ms
        result.last_ms = record.timestamp_ms
        self._seen += 1
        if self._seen % 10_000 == 0:
            self._said(self._seen)

    def _perform(self, batch: FoundBatch, records: list[MetadataRecord], files: EventFiles) -> None:
        if not records:
            # Records that are held back until their transaction ends do not count yet.
            return
        self._begin(files, batch.header.stamped_epoch, records[0].timestamp_ms * 1_000)
        self._state.gone.clear()
        facts: list[metadata_state.Fact] = []
        of_fact: list[MetadataRecord] = []
        for record in records:
            self._pulse(record, files)
            found = self._replay.apply(record)
            facts += found
            of_fact += [record] * len(found)
        whys = causes_of(facts) if facts else {}
        for place, (fact, record) in enumerate(zip(facts, of_fact, strict=True)):
            self._report(fact, record, files)
            for reported in events_of(fact, whys.get(place), record.offset, self._assumed.lag_time_max_ms):
                files.add(record.timestamp_ms * 1_000, self._with_more(reported, record))
        files.beat(records[-1].timestamp_ms * 1_000)

    def _with_more(self, reported: HistoryEvent, record: MetadataRecord) -> HistoryEvent:
        """Add to an event what other sources know: the cause of a fence, and inferences."""
        learnt, event = self.result.learnt, reported.event
        if learnt is None:
            return reported
        if isinstance(event, NodeSession) and event.phase == "fence":
            has_timed_out = learnt.has_timed_out(event.subject_node_id, record.timestamp_ms)
            return reported._replace(event=event._replace(cause=SESSION_TIMED_OUT)) if has_timed_out else reported
        if isinstance(event, LeaderChange):
            return self._with_start(reported, event, learnt)
        is_subject = isinstance(event, IsrChange) or (isinstance(event, NodeSession) and event.phase == "register")
        if is_subject and (inferred := learnt.inferred.get(record.offset)) is not None:
            return reported._replace(ext={**reported.ext, INFERRED: inferred})
        return reported

    def _with_start(self, reported: HistoryEvent, event: LeaderChange, learnt: Learnt) -> HistoryEvent:
        """Add the start offset of a new epoch, if no line of a log has it."""
        if reported.tp is None or event.new_leader is None or event.new_leader_epoch is None:
            return reported
        if (reported.tp, event.new_leader_epoch) in learnt.started:
            return reported
        began = self._checks.start_of(reported.tp, event.new_leader_epoch, event.new_leader)
        if began is None:
            return reported
        source = f"{EPOCHS_FILE} of node {', '.join(map(str, began.nodes))}"
        return reported._replace(ext={**reported.ext, START_OFFSET: str(began.start_offset), START_SOURCE: source})

    def _write_broker(self, log: BrokerLog, learnt: Learnt, destination: Destination) -> None:
        """Write the events of one broker's logs, incarnation by incarnation."""
        result, at_us, incarnation = self.result, 0, None
        joined, clock = learnt.joined[log.node_id], learnt.clocks[log.node_id]
        story = BrokerStory(log.node_id, clock, learnt.skeleton, log.facts, joined)
        files = EventFiles(
            destination, result.cluster_id, self._state.topics.get, node_id=log.node_id, window=self._window
        )
        for placed in story.events():
            at_us = placed.at_us
            if placed.incarnation != incarnation:
                incarnation = placed.incarnation
                files.begin(incarnation, at_us)
            files.add(at_us, placed.reported)
            files.beat(at_us)
        files.end(at_us)
        result.rows, result.files = result.rows + files.rows, result.files + files.files
        result.log_rows[log.node_id] = files.rows
        result.left_out[log.node_id] = story.left_out

    def _begin(self, files: EventFiles, controller_epoch: int, at_us: int) -> None:
        if self._epoch != controller_epoch:
            self._epoch = controller_epoch
            files.begin(controller_epoch, at_us)

    def _report(self, fact: metadata_state.Fact, record: MetadataRecord, files: EventFiles) -> None:
        if isinstance(fact, metadata_state.Unknown):
            self.result.unknown[fact.name] += not files.is_silent
            files.add_gap(record.timestamp_ms * 1_000, fact.name)
        elif isinstance(fact, metadata_state.RegistrationRepeated):
            self.result.repeated_registrations += 1
        elif isinstance(fact, metadata_state.ControllerElected):
            self.result.unnamed_controllers += fact.leader_id is None
        elif self._listener is not None and isinstance(fact, metadata_state.Deleted):
            self._listener.deleted(fact.partition, record.timestamp_ms)
        elif self._listener is not None and isinstance(fact, metadata_state.Created | metadata_state.Changed):
            after = fact.partition if isinstance(fact, metadata_state.Created) else fact.after
            if isinstance(fact, metadata_state.Created) or fact.names_leader:
                self._listener.elected(after, record.timestamp_ms)

    def _pulse(self, record: MetadataRecord, files: EventFiles) -> None:
        """Handle the passing of time: an hour begins, or nothing was decided for long."""
        self._last = record
        if self._listener is not None:
            self._listener.pass_until(record.timestamp_ms, self._state)
        hour = hour_of(record.timestamp_ms * 1_000)
        if self._hour is not None and hour > self._hour:
            for reported in self._states(record.offset - 1):
                files.add(hour * _HOUR_US, reported)
        self._hour = hour if self._hour is None else max(self._hour, hour)
        if not self._is_open and record.timestamp_ms * 1_000 >= self._window.start_us:
            self._open(record, files)
        self._add_samples(record.timestamp_ms * 1_000, files)
        passed_ms = self._silences.passed(record)
        if passed_ms is not None:
            self.result.silences += 1
            files.add(record.timestamp_ms * 1_000, self._silence(record, passed_ms))

    def _open(self, record: MetadataRecord, files: EventFiles) -> None:
        """Begin the window, with the state at that time."""
        self._is_open = True
        start_us = self._window.start_us
        for reported in (*self._clock_samples.values(), *self._states(record.offset - 1)):
            files.add(start_us, reported)

    def _add_samples(self, now_us: int, files: EventFiles) -> None:
        """Add the measurements of clocks up to now."""
        while self._samples and self._samples[0][0] <= now_us:
            at_us, reported = self._samples.popleft()
            if isinstance(reported.event, ClockSample):
                self._clock_samples[reported.event.subject_node_id] = reported
            files.add(max(at_us, now_us), reported)

    def _silence(self, record: MetadataRecord, passed_ms: int) -> HistoryEvent:
        said = f"no decision for {passed_ms} ms before offset {record.offset}"
        state = self._state
        return HistoryEvent(
            None, ControllerDecision("silent", state.active(), state.fenced(), said, meta_offset=record.offset)
        )

    def _states(self, meta_offset: int) -> Iterator[HistoryEvent]:
        for partition in list(self._state.partitions.values()):
            yield snapshot(partition, self._state.min_isr(partition.tp.topic_id), meta_offset)

    def _check(self, next_offset: int) -> None:
        while self._snapshots and self._snapshots[0].end_offset <= next_offset:
            found = self._snapshots.popleft()
            if found.end_offset < next_offset:
                continue
            other = metadata_state.ClusterState()
            Replay(other).load(snapshot_records(found))
            different = list(self._state.differences(other))
            if different:
                shown = "; ".join(different[:_DIFFERENCES_SHOWN])
                raise Unreadable(f"{found.path}: the log up to offset {next_offset} does not amount to it: {shown}")
            self.result.snapshots_equal += 1

    def as_earlier(self) -> Earlier:
        """The state from which a later import continues, once this one is written."""
        result, proof, before = self.result, self.result.proof, self._earlier
        return Earlier(
            first_offset=proof.first_offset if before is None else before.first_offset,
            end_offset=proof.proved_end,
            end_crc=result.end_crc,
            records=result.records + (0 if before is None else before.records),
            imports=1 if before is None else before.imports + 1,
            last_seqs=dict(result.last_seqs),
            unknown=+(result.unknown + (Counter() if before is None else before.unknown)),
            nodes=frozenset(copy.node_id for copy in self._copies if copy.node_id is not None)
            | (frozenset() if before is None else before.nodes),
        )

    def source(self) -> dict[str, object]:
        """The description of the source in an export."""
        result, listener, now = self.result, self._listener, self.as_earlier()
        said: dict[str, object] = {
            "source": "kafka",
            "levels": [
                METADATA_LOG,
                *([BROKER_LOGS] if self._logs else []),
                *([] if listener is None else [listener.name]),
            ],
            "cluster_id": result.cluster_id,
            "nodes": sorted(now.nodes),
            "first_offset": now.first_offset,
            "end_offset": now.end_offset,
            "end_crc": now.end_crc,
            "records": now.records,
            "imports": now.imports,
            "window_us": [self._window.start_us, self._window.end_us] if self._window != EVERYTHING else None,
            "unknown_records": dict(sorted(now.unknown.items())),
            "is_whole": self._state.is_whole,
            "metadata_version_level": result.metadata_version,
            "last_seqs": {str(epoch): seq for epoch, seq in sorted(now.last_seqs.items())},
            "kafka_versions": [] if result.learnt is None else list(result.learnt.versions),
            "logs": {str(log.node_id): self._of_log(log) for log in self._logs},
            "checkpoints": {
                str(one.node_id): {"replicas": len(one.replicas), "epochs": one.entries} for one in self._checkpoints
            },
            "findings": result.findings,
            "assumed": self._assumed.said(),
        }
        if listener is not None:
            said[listener.name] = listener.said()
        return said

    def _of_log(self, log: BrokerLog) -> dict[str, object]:
        """The description of one broker's logs in an export: their range, and how its clock was measured."""
        result = self.result
        clock = None if result.learnt is None else result.learnt.clocks[log.node_id]
        spans = () if clock is None else clock.spans
        return {
            "first": log.facts[0].at_ms if log.facts else None,
            "last": log.facts[-1].at_ms if log.facts else None,
            "events": result.log_rows.get(log.node_id, 0),
            "unknown_lines": dict(sorted(log.unknown.items())),
            "clock": [
                {"from_ms": one.from_ms, "zone_ms": one.zone_ms, "offset_ms": [one.low_ms, one.high_ms]}
                for one in spans
            ],
        }
