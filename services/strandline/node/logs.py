"""The logs of one data directory, by topic id and partition.

Invariant: a log is opened once per process and only under its own topic id; a log in the place of another one is closed
before it is set aside (M63).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from strandline.core.control.topic_configs import TIMESTAMP_AFTER_MAX
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import AdvanceLogStart, Append, AppendReplicated
from strandline.core.messages import MAX_TIMESTAMP, MetadataImage, OffsetAnswer, TopicImage
from strandline.core.serving.offsets import settled
from strandline.core.types import (
    NO_TRANSACTIONS,
    EpochEntry,
    LeaderEpoch,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes
from strandline.runtime.clock import wall_ms
from strandline.runtime.ports import Chunk, Cut, Opened
from strandline.runtime.threads import giving_way
from strandline.storage.chain import FlushToken
from strandline.storage.checkpoint_files import CheckpointDamaged, LogName, read_topic_id
from strandline.storage.directory import DataDirectory, OpenedLog
from strandline.storage.disk import StorageDamaged
from strandline.storage.log import Log, LogSettings

_OPENING_THREADS = 4
_SETTING_OF = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "index.interval.bytes": "index_interval_bytes",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    TIMESTAMP_AFTER_MAX: "timestamp_after_max_ms",
}
_UNLIMITED = frozenset({"retention_bytes", "retention_ms"})
"""Fields in which Kafka's -1 means no limit."""
_CHANGED = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "the log was cut while a time was looked for; refresh metadata and ask again",
)
_GONE = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not hold the partition any more; refresh metadata")

Progress = Callable[[int, int, OpenedLog], None]
"""Called after each opened log, with the number of open logs, the number of all logs, and what was found."""


_Question = tuple[TopicPartition, Offset, Offset, int, bool]
"""The partition, start, end, most bytes, and whether one batch is returned whatever its size."""


class DirectoryLogs:
    """`runtime.ports.Logs` and `runtime.host.LogSizes` over one `DataDirectory`."""

    def __init__(self, directory: DataDirectory, defaults: LogSettings) -> None:
        self.directory = directory
        self._defaults = defaults
        self._configs: dict[str, Mapping[str, str]] = {}
        self._logs: dict[TopicPartition, Log] = {}
        # A topic that was deleted and created again has the same log names under another id.
        self._by_name: dict[LogName, TopicPartition] = {}
        self._found: dict[TopicPartition, OpenedLog] = {}
        # The last question and what was read for it: followers that wait at the log end ask the same in turn.
        self._last_read: tuple[_Question, Chunk] | None = None
        self._image_writer = ImageWriter()
        self.saves_wait = False
        """Whether something was saved that `sync_saves` has not yet made durable."""

    def stored_metadata(self) -> MetadataImage | None:
        """Read the newest metadata that an earlier process stored, and apply the settings of its topics."""
        content = self.directory.checkpoints.metadata()
        image = None if content is None else image_from_bytes(content)
        if image is not None:
            self.learn_configs(image)
        return image

    def stored_metadata_age_ms(self) -> int:
        """Milliseconds since the newest metadata was stored, by its file's time; 0 without a file."""
        written_s = self.directory.checkpoints.metadata_written_s()
        return 0 if written_s is None else max(0, wall_ms() - int(1_000 * written_s))

    def open_all(self, progress: Progress) -> None:
        """Open and recover every log that has a topic id; several at a time after a clean stop.

        After an unclean stop they are opened one by one, because recovery may have to change shared files.
        """
        known = [(name, topic_id) for name in self.directory.log_names() if (topic_id := self._topic_id(name))]

        def open_one(item: tuple[LogName, str]) -> OpenedLog:
            (topic, partition), topic_id = item
            return self.directory.open_log(topic, partition, topic_id, self._settings(topic_id))

        threads = _OPENING_THREADS if self.directory.stopped_cleanly else 1
        with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as pool:
            opened = pool.map(open_one, known)
            for count, ((name, topic_id), found) in enumerate(zip(known, opened, strict=True), 1):
                self._take(TopicPartition(topic_id, name[1]), found)
                progress(count, len(known), found)
        self.directory.settle()

    def _topic_id(self, name: LogName) -> str | None:
        try:
            return read_topic_id(self.directory.path / f"{name[0]}-{name[1]}")
        except CheckpointDamaged:
            return None

    def _take(self, tp: TopicPartition, found: OpenedLog) -> None:
        self._logs[tp] = found.log
        self._by_name[found.log.name] = tp
        self._found[tp] = found

    def close(self, *, clean: bool) -> None:
        """Close every log, then the directory; only a clean close sets the clean-shutdown mark."""
        for log in self._logs.values():
            log.close(clean=clean)
        self.directory.close(clean=clean)

    def learn_configs(self, image: MetadataImage) -> None:
        """Apply the settings of the topics in an image."""
        for topic in image.topics:
            self._learn(topic)
        for topic_id in image.deleted_topic_ids:
            self._configs.pop(topic_id, None)

    def _learn(self, topic: TopicImage) -> None:
        configs = dict(topic.configs)
        if self._configs.get(topic.topic_id) == configs:
            return
        self._configs[topic.topic_id] = configs
        for tp, log in self._logs.items():
            if tp.topic_id == topic.topic_id:
                log.settings = self._settings(topic.topic_id)

    def _settings(self, topic_id: str) -> LogSettings:
        return _log_settings(self._configs.get(topic_id, {}), self._defaults)

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """Open the log of a partition, or create it; one that was recovered at the start is already open."""
        if tp in self._logs and tp not in self._found:
            # The core has released it since; opening it again reads its present state from the files.
            self._logs.pop(tp).close(clean=True)
        if tp not in self._logs:
            self._close_predecessor(tp, topic)
            self.saves_wait = True
            self._take(tp, self.directory.open_log(topic, tp.partition, tp.topic_id, self._settings(tp.topic_id)))
        log, recovery = self._logs[tp], self._found.pop(tp).recovery
        high_watermark = self.directory.checkpoints.high_watermarks.get(log.name) or Offset(0)
        reconciled = self.directory.checkpoints.reconciled_epochs.get(log.name)
        producers = log.producers()
        return Opened(
            log.log_start_offset,
            log.leo,
            high_watermark,
            recovery.epochs,
            producers.rows(),
            None if reconciled is None else LeaderEpoch(reconciled),
            recovery.was_clean,
            producers.transactions.state(),
        )

    def _close_predecessor(self, tp: TopicPartition, topic: str) -> None:
        other = self._by_name.get((topic, tp.partition))
        if other is not None and other != tp and (log := self._logs.pop(other, None)) is not None:
            log.close(clean=False)

    def delete(self, tp: TopicPartition) -> None:
        """Delete a log permanently."""
        if (log := self._let_go(tp)) is not None:
            self.directory.delete_log(log)

    def set_aside(self, tp: TopicPartition) -> None:
        """Stop using a log for good, but keep its files for a while (C78)."""
        if (log := self._let_go(tp)) is not None:
            self.directory.set_log_aside(log, tp.topic_id)

    def _let_go(self, tp: TopicPartition) -> Log | None:
        self._last_read = None
        log = self._logs.pop(tp, None)
        self._found.pop(tp, None)
        if log is not None:
            self.saves_wait = True
            if self._by_name.get(log.name) == tp:
                del self._by_name[log.name]
        return log

    def set_aside_moved(self, image: MetadataImage) -> None:
        """Set aside logs found at the start whose partitions were moved to other nodes, or deleted, meanwhile (C78)."""
        node_id, topics = self.directory.identity.node_id, image.topics if self._found else ()
        here = {p.tp for topic in topics for p in topic.partitions if node_id in (*p.replicas, *p.observers)}
        named = {topic.topic_id for topic in topics}
        for tp in [tp for tp in self._found if tp not in here and (image.is_snapshot or tp.topic_id in named)]:
            self.set_aside(tp)

    def append(self, effect: Append) -> bool:
        """Write a batch as leader; return whether it began a new segment."""
        batch = effect.header, _view(effect.payload)
        return self._logs[effect.tp].append((batch,), effect.base_offset, effect.leader_epoch)

    def append_replicated(self, effect: AppendReplicated) -> bool:
        """Write the leader's bytes; return whether they began a new segment."""
        return self._logs[effect.tp].append_replicated(_view(effect.payload), effect.batches)

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Truncate a log; return its LEO and the producer state of what is left."""
        self._last_read = None
        log = self._logs[tp]
        leo = log.truncate_to(offset, durable=durable)
        producers = log.producers()
        return Cut(leo, producers.rows(), producers.transactions.state())

    def restart(
        self,
        tp: TopicPartition,
        offset: Offset,
        producers: Sequence[ProducerBatch],
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Drop all records and begin at ``offset``, with the producer state below it."""
        self._last_read = None
        self._logs[tp].truncate_fully_and_start_at(offset, producers, transactions)

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Advance a log's start offset."""
        self._last_read = None
        self.saves_wait = True
        self._logs[effect.tp].advance_log_start(effect.offset)

    def expired(self, tp: TopicPartition, high_watermark: Offset) -> Offset | None:
        """The offset to which retention can move the log start; None if it stays."""
        return self._logs[tp].segments_expired(wall_ms(), high_watermark)

    def save_epochs(self, tp: TopicPartition, entries: Sequence[EpochEntry]) -> None:
        """Save the epochs."""
        self.saves_wait = True
        self._logs[tp].save_epochs(entries)

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        """Save the HWs, together with the offsets up to which logs are durable."""
        checkpoints = self.directory.checkpoints
        for tp, offset in high_watermarks.items():
            log = self._logs.get(tp)
            if log is not None:
                checkpoints.high_watermarks.put(log.name, offset)
        checkpoints.save(checkpoints.high_watermarks, checkpoints.recovery_points, durable=durable)
        self.saves_wait = True

    def save_reconciled_epochs(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> None:
        """Save the leader epochs with which these logs have been reconciled."""
        checkpoint = self.directory.checkpoints.reconciled_epochs
        for tp, epoch in epochs.items():
            log = self._logs.get(tp)
            if log is not None:
                checkpoint.put(log.name, Offset(epoch))
        self.directory.checkpoints.save(checkpoint)
        self.saves_wait = True

    def save_producers(
        self, tp: TopicPartition, offset: Offset, rows: Sequence[ProducerBatch], transactions: TransactionState
    ) -> None:
        """Write the producer state."""
        self._logs[tp].save_producers(offset, rows, transactions)

    def save_metadata(self, image: MetadataImage) -> None:
        """Keep the newest metadata."""
        self.directory.checkpoints.save_metadata(self._image_writer.to_bytes(image))
        self.saves_wait = True

    def sync_saves(self) -> None:
        """Make all saved data durable, with one append and one sync."""
        if self.saves_wait:
            self.saves_wait = False
            self.directory.settle()

    def issue_flush(self, tp: TopicPartition) -> FlushToken:
        """Issue a commit that covers everything appended so far."""
        return self._logs[tp].issue_flush()

    def note_durable(self, tp: TopicPartition, offset: Offset) -> None:
        """Note that recovery may trust the log up to ``offset``."""
        self._logs[tp].note_durable(offset)

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        """Whole batches from the one that holds ``start``, none that ends above ``end``."""
        question = tp, start, end, max_bytes, at_least_one
        last, self._last_read = self._last_read, None
        if last is not None and last[0] == question:
            # Used only once, for the other follower, so that the next reader finds damage that arises later.
            return last[1]
        chunk = Chunk(*self._logs[tp].read(start, max_bytes, end, at_least_one=at_least_one))
        self._last_read = question, chunk
        return chunk

    def look_up(self, answer: OffsetAnswer) -> Callable[[], OffsetAnswer]:
        """Open the files that may hold the record of ``answer.lookup``; return a function that finds it there.

        That function touches no log and may run in any thread. If there is no record, offset and timestamp are absent.

        Raises:
            StorageDamaged: a batch that had to be read is damaged.
        """
        tp, lookup = answer.tp, answer.lookup
        assert lookup is not None, "only answers with a lookup are looked up"
        log = self._logs.get(tp)
        if log is None:
            # A call with several lookups outlasts the step in which it began, so the log may be gone.
            return lambda: OffsetAnswer(tp, refusal=_GONE)
        asked = lookup.timestamp
        timestamp_ms = log.max_timestamp_before(lookup.end) if asked == MAX_TIMESTAMP else asked
        if timestamp_ms is None:
            return lambda: OffsetAnswer(tp)
        search = log.search_time(timestamp_ms, lookup.end)

        def find() -> OffsetAnswer:
            try:
                found = search.first_record(giving_way)
                return settled(OffsetAnswer(tp, *found), lookup) if found else OffsetAnswer(tp)
            except StorageDamaged:
                # Most likely the log was truncated, because it is no longer led; the next read finds real damage.
                return OffsetAnswer(tp, refusal=_CHANGED)
            finally:
                search.close()

        return find

    def held(self) -> Iterable[TopicPartition]:
        """All partitions whose log is open and known to the core."""
        return [tp for tp in self._logs if tp not in self._found]

    def size_bytes(self, tp: TopicPartition) -> int:
        """Bytes of a log's segments; 0 if there is no log."""
        log = self._logs.get(tp)
        return log.size_bytes if log is not None else 0

    def retention_waits_until_ms(self, tp: TopicPartition) -> int | None:
        """The future time, by the wall clock, until which a log's retention waits; None if it does not wait."""
        log = self._logs.get(tp)
        return log.retention_waits_until_ms(wall_ms()) if log is not None else None

    def bytes_between(self, tp: TopicPartition, start: Offset, end: Offset) -> int:
        """Bytes of the batches between two offsets."""
        log = self._logs.get(tp)
        return log.bytes_between(start, end) if log is not None else 0


def _view(payload: object) -> memoryview:
    """A batch's bytes. The core passes payloads on unread, and the simulator uses other types for them."""
    assert isinstance(payload, memoryview), f"{type(payload).__name__} cannot be written to a file"
    return payload


def _log_settings(configs: Mapping[str, str], defaults: LogSettings) -> LogSettings:
    """``defaults`` with the topic's settings applied; settings that this release does not know are ignored."""
    found: dict[str, int | None] = {}
    for name, field in _SETTING_OF.items():
        if name in configs:
            value = int(configs[name])
            found[field] = None if value < 0 and field in _UNLIMITED else value
    return replace(defaults, **found)  # type: ignore[arg-type]  # the fields' names and types are in _SETTING_OF
