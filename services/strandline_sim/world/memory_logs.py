"""The logs of a simulated disk, as a data node's performers use them (`runtime.ports.Logs`).

The one place where effects on logs are performed in memory, as `node.logs` is the one for files: simulator,
scenarios and tests of several cores use it, each with its own `Looks`.

Invariant: a batch is its header and one value that represents its bytes; a read returns what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

from strandline.core.log.effects import AdvanceLogStart, Append, AppendReplicated
from strandline.core.messages import FetchedPartition, MetadataImage, OffsetAnswer, ServedPartition
from strandline.core.types import (
    NO_TRANSACTIONS,
    BatchHeader,
    EpochEntry,
    LeaderEpoch,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.runtime.ports import Chunk, Cut, Opened
from strandline_sim.world.disk import Disk, LogFile


class Batches:
    """Whole batches that were read. Its length is the size that their bytes would have."""

    __slots__ = ("_size_bytes", "headers", "values")

    def __init__(self, headers: tuple[BatchHeader, ...], values: tuple[object, ...], size_bytes: int) -> None:
        self.headers = headers
        self.values = values
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes


NO_BATCHES = Batches((), (), 0)


class Looks(Protocol):
    """Checks or counts changes of logs; changes nothing itself."""

    def opened(self, tp: TopicPartition) -> None:
        """A log was opened or created."""
        ...

    def appended(self, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Batches from index ``first`` on were written."""
        ...

    def truncating(self, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Batches from ``offset`` on are about to be cut."""
        ...

    def restarting(self, tp: TopicPartition, offset: int) -> int:
        """A log is about to begin at ``offset``, empty; returns the hash of what was committed below."""
        ...

    def start_moved(self, tp: TopicPartition) -> None:
        """The log start moved up."""
        ...

    def saved(self, tp: TopicPartition, high_watermark: Offset) -> None:
        """A high watermark was saved."""
        ...


class NoLooks:
    """Checks and counts nothing."""

    def opened(self, tp: TopicPartition) -> None:
        """Nothing."""

    def appended(self, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Nothing."""

    def truncating(self, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Nothing."""

    def restarting(self, tp: TopicPartition, offset: int) -> int:
        """The hash for unknown committed records."""
        return 0

    def start_moved(self, tp: TopicPartition) -> None:
        """Nothing."""

    def saved(self, tp: TopicPartition, high_watermark: Offset) -> None:
        """Nothing."""


class IssuedFlush(NamedTuple):
    """A commit that was issued (`runtime.ports.FlushToken`)."""

    log: LogFile
    leo_at_issue: Offset
    has_work: bool

    def sync(self) -> None:
        """Make durable all that was written when it was issued."""
        self.log.end_flush()


class MemoryLogs:
    """All logs of one disk. ``content`` represents a value's bytes in the hash of a log.

    ``saves_durably``: a checkpoint survives a loss of power even where the core does not ask for it.
    """

    def __init__(
        self, disk: Disk, content: Callable[[Any], int], looks: Looks | None = None, *, saves_durably: bool = False
    ) -> None:
        self.disk = disk
        self._content = content
        self._looks: Looks = looks or NoLooks()
        self._saves_durably = saves_durably
        self.saves_wait = self._durably = False
        # Undo actions for what was saved and is in no frame yet, newest last.
        self._undo: list[Callable[[], None]] = []

    def _save(self, of: object, name: str, value: object, *, durable: bool = True) -> None:
        """Change one value in the journal of checkpoints."""
        self.saves_wait = True
        self._durably |= durable
        self._undo.append(partial(setattr, of, name, getattr(of, name)))
        setattr(of, name, value)

    def sync_saves(self) -> None:
        """Write what was saved as one frame of the journal: all of it becomes durable, if any of it must be."""
        if self.saves_wait:
            self.disk.journal.save(durable=self._durably)
        self.saves_wait = self._durably = False
        self._undo.clear()

    def lose_saves(self) -> None:
        """Undo what was saved since the last frame: the process ended, and an unwritten frame is lost as a whole."""
        while self._undo:
            self._undo.pop()()
        self.saves_wait = self._durably = False

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """The log on this disk, or a new one."""
        log = self.disk.logs.get(tp)
        if log is None:
            log = self.disk.logs[tp] = LogFile()
            self.saves_wait = self._durably = True
            self._undo.append(partial(self.disk.logs.__delitem__, tp))
        self._looks.opened(tp)
        start, leo, hw = Offset(log.log_start), Offset(log.leo), Offset(log.hw_cached)
        producers = log.producers()
        return Opened(
            start, leo, hw, log.epochs, producers.rows(), log.reconciled, transactions=producers.transactions.state()
        )

    def delete(self, tp: TopicPartition) -> None:
        """Remove a log for good."""
        log = self.disk.logs.pop(tp, None)
        if log is not None:
            self.saves_wait = self._durably = True
            self._undo.append(partial(self.disk.logs.__setitem__, tp, log))

    def set_aside(self, tp: TopicPartition) -> None:
        """Never use a log again."""
        self.delete(tp)

    def append(self, effect: Append) -> bool:
        """Write a batch as leader."""
        header = effect.header._replace(base_offset=effect.base_offset, leader_epoch=effect.leader_epoch)
        log = self.disk.logs[effect.tp]
        log.append(header, effect.payload, self._content(effect.payload))
        self._looks.appended(effect.tp, log, len(log.starts) - 1)
        return False

    def append_replicated(self, effect: AppendReplicated) -> bool:
        """Write the leader's batches."""
        log = self.disk.logs[effect.tp]
        first = len(log.starts)
        values: Any = effect.payload
        for header, value in zip(effect.batches, values, strict=True):
            log.append(header, value, self._content(value))
        self._looks.appended(effect.tp, log, first)
        return False

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Cut a log; returns its LEO and the producer state of the rest."""
        self.sync_saves()
        log = self.disk.logs[tp]
        self._looks.truncating(tp, log, log.border_below(offset))
        log.cut(offset)
        producers = log.producers()
        return Cut(Offset(log.leo), producers.rows(), producers.transactions.state())

    def restart(
        self,
        tp: TopicPartition,
        offset: Offset,
        producers: Sequence[ProducerBatch],
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Drop a log's records and begin at ``offset``, with the producer state below it."""
        self.sync_saves()
        self.disk.logs[tp].restart(offset, self._looks.restarting(tp, offset), tuple(producers), transactions)

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Move a log's start up."""
        self._looks.start_moved(effect.tp)
        self._save(self.disk.logs[effect.tp], "log_start", effect.offset)

    def expired(self, tp: TopicPartition, high_watermark: Offset) -> Offset | None:
        """Nothing expires here."""
        return None

    def save_epochs(self, tp: TopicPartition, entries: Sequence[EpochEntry]) -> None:
        """Save the epochs."""
        self._save(self.disk.logs[tp], "epochs", tuple(entries))

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        """Save HWs together with the known durable ends."""
        durable = durable or self._saves_durably
        for tp, high_watermark in high_watermarks.items():
            log = self.disk.logs[tp]
            self._save(log, "hw_cached", high_watermark, durable=durable)
            self._looks.saved(tp, high_watermark)
            if durable:
                self._save(log, "hw_durable", high_watermark)
        for log in self.disk.logs.values():
            self._save(log, "recovery_point", log.synced, durable=durable)
            if durable:
                self._save(log, "recovery_point_durable", log.synced)

    def save_reconciled_epochs(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> None:
        """Save the leader epochs with which these logs agree."""
        for tp, epoch in epochs.items():
            self._save(self.disk.logs[tp], "reconciled", epoch)

    def save_producers(
        self, tp: TopicPartition, offset: Offset, rows: Sequence[ProducerBatch], transactions: TransactionState
    ) -> None:
        """Nothing: recovery folds them from the batches (M61)."""

    def save_metadata(self, image: MetadataImage) -> None:
        """Keep the newest metadata."""
        self._save(self.disk, "seen", image)

    def issue_flush(self, tp: TopicPartition) -> IssuedFlush:
        """A commit over all that was appended."""
        log = self.disk.logs[tp]
        if log.synced >= log.leo:
            return IssuedFlush(log, Offset(log.leo), has_work=False)
        return IssuedFlush(log, Offset(log.begin_flush()), has_work=True)

    def note_durable(self, tp: TopicPartition, offset: Offset) -> None:
        """Nothing: the checkpoint of high watermarks carries it."""

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        """Whole batches from the one that holds ``start``, none that ends above ``end``."""
        log = self.disk.logs[tp]
        first = index = max(0, log.index_of(start + 1) - 1)
        headers, ends, size_bytes = log.headers, log.ends, 0
        while index < len(ends) and ends[index] <= end:
            more = size_bytes + headers[index].size_bytes
            if more > max_bytes and not (at_least_one and index == first):
                break
            size_bytes = more
            index += 1
        if index == first:
            return Chunk(NO_BATCHES, start)
        found = Batches(tuple(headers[first:index]), tuple(log.values[first:index]), size_bytes)
        return Chunk(found, Offset(ends[index - 1]))

    def look_up(self, answer: OffsetAnswer) -> NoReturn:
        """Never called: no client asks by time here."""
        raise NotImplementedError

    def held(self) -> Iterable[TopicPartition]:
        """Every partition with a log."""
        return list(self.disk.logs)

    def size_bytes(self, tp: TopicPartition) -> int:
        """Bytes of a log's batches, 0 without one."""
        log = self.disk.logs.get(tp)
        return 0 if log is None else sum(header.size_bytes for header in log.headers)

    def retention_waits_until_ms(self, tp: TopicPartition) -> int | None:
        """Never."""
        return None

    def bytes_between(self, tp: TopicPartition, start: Offset, end: Offset) -> int:
        """Bytes of the batches between two offsets."""
        log = self.disk.logs.get(tp)
        headers = [] if log is None else log.headers
        return sum(header.size_bytes for header in headers if start <= header.base_offset < end)


def as_fetched(part: ServedPartition) -> FetchedPartition:
    """What was served, as the asker receives it."""
    result, payload = part
    batches: Any = payload or NO_BATCHES
    return FetchedPartition(
        result.tp,
        result.refusal,
        result.high_watermark,
        result.log_start_offset,
        result.diverging,
        batches.headers,
        batches.values,
        barrier=result.barrier,
    )
