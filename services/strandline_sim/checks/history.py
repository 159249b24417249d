"""Checks whether one correct log can have produced what clients saw.

Invariant: the verdict is a pure function of the operations; it knows nothing of nodes, epochs or files, so it
cannot be fooled by what they believe. An indefinite send may have landed, once, at any later time (P2).

The anomalies have the names that jepsen.tests.kafka gives them. Each record of a consumer
counts as one poll, so the variants within one poll (``int-``) have the name of those between two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from strandline.core.types import value as value_class


class SendOutcome(StrEnum):
    """The outcome of a send, as its client knows it (P2)."""

    OK = "ok"
    DEFINITE = "definite"
    """Failed for certain: the value must never be read."""
    INDEFINITE = "indefinite"
    """May have been appended, once, now or later; stays open for ever."""


class RecordValue(NamedTuple):
    """The value of a record: unique in a history."""

    client: str
    seq: int


class RecordPlace(NamedTuple):
    """The place of a record."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One record that is sent; times are seconds of one clock for the whole history."""

    value: RecordValue
    partition: int
    invoked_s: float
    completed_s: float | None = None
    """None while the send is open."""
    outcome: SendOutcome = SendOutcome.INDEFINITE
    offset: int | None = None
    """The offset of the record; None unless it was acknowledged with an offset."""

    @property
    def place(self) -> RecordPlace | None:
        """The place that the acknowledgement gave."""
        return None if self.offset is None else RecordPlace(self.partition, self.offset)


@value_class
class Read:
    """One record that a consumer was given."""

    consumer: str
    place: RecordPlace
    value: RecordValue
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """The position of a consumer was set, at its start or later: the next record may be anywhere from there on."""

    consumer: str
    place: RecordPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAnswer:
    """A leader's answer with the end of a partition for clients (ListOffsets, latest)."""

    partition: int
    offset: int
    invoked_s: float
    completed_s: float


Operation = Send | Read | Seek | EndAnswer
"""Operations of one process stand in a history in the order in which the process did them."""


class Anomaly(NamedTuple):
    """Something that no correct log does."""

    name: str
    sentence: str


class _Jump(NamedTuple):
    """A read at another offset than the one that its consumer had to read next."""

    read: Read
    expected: int


class _History:
    """The operations by kind, with facts that several rules need.

    Reads are folded as they come, because most repeat the read of another consumer: an hour of clients reads tens
    of millions of records, and the log holds some hundred thousand.
    """

    def __init__(self, operations: Iterable[Operation], unreadable: Collection[int]) -> None:
        self.unreadable = unreadable
        self.sends: list[Send] = []
        self.ends: dict[int, list[EndAnswer]] = defaultdict(list)
        self.first_reads: dict[RecordPlace, dict[RecordValue, Read]] = defaultdict(dict)
        """The earliest read of each value at each place."""
        self.jumps: list[_Jump] = []
        # The next offset of each consumer in each partition.
        self._next: dict[tuple[str, int], int] = {}
        for operation in operations:
            self._take(operation)
        self.acked = [send for send in self.sends if send.outcome is SendOutcome.OK and send.offset is not None]
        # The values reported at each place, and the places reported for each value.
        self.values: dict[RecordPlace, set[RecordValue]] = defaultdict(set)
        self.places: dict[RecordValue, set[RecordPlace]] = defaultdict(set)
        self._take_sightings()
        self.seen = {value for found in self.first_reads.values() for value in found}

    def _take(self, operation: Operation) -> None:
        match operation:
            case Read():
                self._take_read(operation)
            case Send():
                self.sends.append(operation)
            case EndAnswer():
                self.ends[operation.partition].append(operation)
            case Seek():
                self._next[operation.consumer, operation.place.partition] = operation.place.offset

    def _take_read(self, read: Read) -> None:
        place = read.place
        found = self.first_reads[place]
        first = found.get(read.value)
        if first is None or read.at_s < first.at_s:
            found[read.value] = read
        reader = (read.consumer, place.partition)
        expected = self._next.get(reader, place.offset)
        if place.offset != expected:
            self.jumps.append(_Jump(read, expected))
        self._next[reader] = place.offset + 1

    def _take_sightings(self) -> None:
        """Collect every report of a value's place, by an acknowledgement or a read."""
        for send in self.acked:
            assert send.place is not None
            self.values[send.place].add(send.value)
            self.places[send.value].add(send.place)
        for place, found in self.first_reads.items():
            for value in found:
                self.values[place].add(value)
                self.places[value].add(place)


def anomalies(operations: Iterable[Operation], *, unreadable: Collection[int] = ()) -> list[Anomaly]:
    """All anomalies of a history; empty if a correct log can have produced it.

    The history is complete: consumers have read to the end after the last send, except for the partitions that stay
    ``unreadable`` to the end of the run, because they have no leader; losses in those cannot be seen.
    """
    history = _History(operations, unreadable)
    return [anomaly for rule in _RULES for anomaly in rule(history)]


def _lost_write(history: _History) -> Iterator[Anomaly]:
    """A send was acknowledged at an offset that consumers have passed, but is not found there."""
    furthest: dict[int, int] = {}
    for place in history.first_reads:
        furthest[place.partition] = max(place.offset, furthest.get(place.partition, -1))
    for send in history.acked:
        assert send.place is not None
        passed = send.place.offset < furthest.get(send.partition, -1)
        found = set(history.first_reads.get(send.place, ()))
        if send.value not in found and (found or passed):
            yield Anomaly(
                "lost-write", f"{_named(send.value, send.place)} was acknowledged, read there: {found or 'nothing'}"
            )


def _inconsistent_offsets(history: _History) -> Iterator[Anomaly]:
    """Two values were seen at one offset."""
    for place, found in history.values.items():
        if len(found) > 1:
            yield Anomaly("inconsistent-offsets", f"{place} holds {sorted(found)}")


def _duplicate(history: _History) -> Iterator[Anomaly]:
    """One value was seen at two places."""
    for value, places in history.places.items():
        if len(places) > 1:
            yield Anomaly("duplicate", f"{value} lies at {sorted(places)}")


def _unseen(history: _History) -> Iterator[Anomaly]:
    """A send was acknowledged but never read, though the partition could be read to its end."""
    for send in history.sends:
        is_lost = send.outcome is SendOutcome.OK and send.value not in history.seen
        if is_lost and send.partition not in history.unreadable:
            yield Anomaly("unseen", f"{_named(send.value, send.place)} was acknowledged and never read")


def _phantom(history: _History) -> Iterator[Anomaly]:
    """A value was read, although its send failed for certain or was never made (G1a)."""
    outcomes = {send.value: send.outcome for send in history.sends}
    phantoms = {value for value in history.seen if outcomes.get(value) in (None, SendOutcome.DEFINITE)}
    for place, found in history.first_reads.items() if phantoms else ():
        for value in phantoms & found.keys():
            why = "was never sent" if outcomes.get(value) is None else "failed for certain"
            yield Anomaly("phantom", f"{_named(value, place)} was read and {why}")


def _poll_order(history: _History) -> Iterator[Anomaly]:
    """A consumer skipped an existing offset, or went back, without a seek in between."""
    for read, expected in history.jumps:
        partition, offset = read.place
        if offset < expected:
            yield Anomaly("nonmonotonic-poll", f"{read.consumer} read {read.place} when {expected} was next")
            continue
        skipped = [each for each in range(expected, offset) if RecordPlace(partition, each) in history.values]
        if skipped:
            yield Anomaly(
                "poll-skip", f"{read.consumer} read {read.place} when {expected} was next; passed over {skipped[:3]}"
            )


def _nonmonotonic_send(history: _History) -> Iterator[Anomaly]:
    """One producer's later send has a lower offset than an earlier one (P3)."""
    sent: dict[tuple[str, int], list[Send]] = defaultdict(list)
    for send in history.acked:
        sent[send.value.client, send.partition].append(send)
    for sends in sent.values():
        for before, after in pairwise(sends):
            assert before.offset is not None and after.offset is not None
            if after.offset < before.offset:
                yield Anomaly("nonmonotonic-send", f"{_named(after.value, after.place)} was sent after {before}")


def _realtime(history: _History) -> Iterator[Anomaly]:
    """A send that had ended before another began has a higher offset (P3)."""
    by_partition: dict[int, list[Send]] = defaultdict(list)
    for send in history.acked:
        by_partition[send.partition].append(send)
    for sends in by_partition.values():
        finished = sorted(sends, key=lambda send: send.completed_s or 0.0)
        index, highest = 0, -1
        for send in sorted(sends, key=lambda send: send.invoked_s):
            while index < len(finished) and (finished[index].completed_s or 0.0) < send.invoked_s:
                highest = max(highest, finished[index].offset or 0)
                index += 1
            assert send.offset is not None
            if send.offset < highest:
                yield Anomaly(
                    "realtime", f"{_named(send.value, send.place)} began after the one at {highest} had ended"
                )


def _early_read(history: _History) -> Iterator[Anomaly]:
    """A value was read before anybody sent it."""
    began = {send.value: send.invoked_s for send in history.sends}
    for found in history.first_reads.values():
        for read in found.values():
            if read.at_s < began.get(read.value, read.at_s):
                yield Anomaly("early-read", f"{_named(read.value, read.place)} was read before it was sent")


def _end_regress(history: _History) -> Iterator[Anomaly]:
    """The end that clients can see went back (KIP-207)."""
    for partition, answers in history.ends.items():
        finished = sorted(answers, key=lambda answer: answer.completed_s)
        index, highest = 0, -1
        for answer in sorted(answers, key=lambda answer: answer.invoked_s):
            while index < len(finished) and finished[index].completed_s < answer.invoked_s:
                highest = max(highest, finished[index].offset)
                index += 1
            if answer.offset < highest:
                yield Anomaly("end-regress", f"partition {partition} ended at {highest}, later at {answer.offset}")


_RULES: tuple[Callable[[_History], Iterator[Anomaly]], ...] = (
    _lost_write,
    _inconsistent_offsets,
    _duplicate,
    _unseen,
    _phantom,
    _poll_order,
    _nonmonotonic_send,
    _realtime,
    _early_read,
    _end_regress,
)


def _named(value: RecordValue, place: RecordPlace | None) -> str:
    where = f"at {place.partition}/{place.offset}" if place else "without an offset"
    return f"{value.client}/{value.seq} {where}"


# ---- names
# Gives the one object that represents a value or a place in the history of a run.
#
# Invariant: equal values of one run are one object, and equal places too, so a record that five consumers read is
# built and compared once.

VALUE_BITS = 24
"""A value is client << VALUE_BITS | sequence number of the record at this client."""


class Names:
    """All values and places of one run."""

    __slots__ = ("_places", "_values")

    def __init__(self) -> None:
        self._values: dict[int, list[RecordValue]] = {}
        self._places: dict[int, list[RecordPlace]] = {}

    def values(self, code: int, count: int) -> list[RecordValue]:
        """The values of the records of a batch, which a log stores as one number."""
        found = self._values.get(code)
        if found is None or len(found) < count:
            client, first = f"p{code >> VALUE_BITS}", code & ((1 << VALUE_BITS) - 1)
            found = self._values[code] = [RecordValue(client, first + index) for index in range(count)]
        return found

    def place(self, partition: int, offset: int) -> RecordPlace:
        """The place of a record."""
        found = self._places.get(partition)
        if found is None:
            found = self._places[partition] = []
        while len(found) <= offset:
            found.append(RecordPlace(partition, len(found)))
        return found[offset]
