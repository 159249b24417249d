"""What members of a group and transforming processes write down: lines as in `history_file`, one file for each life.

    ["taken", at, member, topic, partition]
    ["dropped", at, member, topic, partition, how]
    ["given", asked, at, member, topic, partition, [[offset, client, seq], ...]]
    ["commit", at, member, serial, topic, partition, offset]
    ["committed", at, member, serial, topic, partition, outcome]
    ["fetched", asked, at, topic, partition, serial, offset]

A commit has a line before it is sent and one after it ended, and one without the second is still open. ``serial`` goes
with the commit as its metadata, so that a reader of an offset knows whose it is.

    ["begun", at, transaction, transactional_id, group, [[partition, offset, client, seq, into], ...]]
    ["asked", at, transaction]
    ["ended", at, transaction, outcome, [offset, ...]]

The first says which inputs a transaction was given, and to which partition the output of each goes; the output of input
i is the value ``transaction/i``. "asked" is in the kernel before the commit is asked for: without it nothing of the
transaction may ever be read, and one with it and without "ended" has an unknown outcome. ``offset`` is where
the output of each input lies, in a transaction that is committed.

Invariant: partitions of inputs are numbered from `INPUTS_FROM` on in what is judged, those of outputs from 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

from harness.history_file import HistoryWriter, rows_of

from strandline.client import TopicPartition
from strandline_sim.checks import group_history
from strandline_sim.checks.history import Read, RecordPlace, RecordValue, Send, SendOutcome
from strandline_sim.checks.transaction_history import Moved, Polled, Txn, TxnOutcome

INPUTS_FROM = 1_000
"""As `history_file.operations` numbers the second of two topics."""


class GroupHistoryWriter(HistoryWriter):
    """Writes down what one member, or a client that asks for committed offsets, did and saw."""

    def taken(self, member: str, at: TopicPartition) -> None:
        self._line(["taken", time.monotonic(), member, at.topic, at.partition])

    def dropped(self, member: str, at: TopicPartition, how: str) -> None:
        self._line(["dropped", time.monotonic(), member, at.topic, at.partition, how])

    def given(self, asked_s: float, member: str, at: TopicPartition, found: Iterable[tuple[int, RecordValue]]) -> None:
        """Records that a member was given, having asked at a time."""
        rows = [[int(offset), value.client, value.seq] for offset, value in found]
        self._line(["given", asked_s, time.monotonic(), member, at.topic, at.partition, rows])

    def commit(self, member: str, serial: str, at: TopicPartition, offset: int) -> None:
        """Before a commit is sent."""
        self._line(["commit", time.monotonic(), member, serial, at.topic, at.partition, int(offset)])

    def committed(self, member: str, serial: str, at: TopicPartition, outcome: group_history.CommitOutcome) -> None:
        """After it ended."""
        self._line(["committed", time.monotonic(), member, serial, at.topic, at.partition, outcome.value])

    def fetched(self, asked_s: float, at: TopicPartition, serial: str | None, offset: int | None) -> None:
        """A coordinator said what is committed."""
        row = [at.topic, at.partition, serial, None if offset is None else int(offset)]
        self._line(["fetched", asked_s, time.monotonic(), *row])


def member_operations(paths: Iterable[Path], group: str) -> list[group_history.MemberOperation]:
    """Histories of members of a group and of readers, as `strandline_sim.checks.group_history` checks them."""
    return [operation for path in paths for operation in _operations_of(path, group)]


def _operations_of(path: Path, group: str) -> Iterator[group_history.MemberOperation]:
    rows = list(rows_of(path))
    ended = {tuple(row[2:6]): row for row in rows if row[0] == "committed"}
    for row in rows:
        match row:
            case ["taken", at, member, topic, partition]:
                yield group_history.Taken(member, group_history.Share(group, topic, partition), _us(at))
            case ["given", asked, at, member, topic, partition, found]:
                share = group_history.Share(group, topic, partition)
                for begin, end in _runs([offset for offset, _, _ in found]):
                    yield group_history.Given(member, share, begin, end, _us(asked), _us(at))
            case ["commit", at, member, serial, topic, partition, offset]:
                over = ended.get((member, serial, topic, partition))
                completed_us = _us(over[1]) if over else None
                outcome = group_history.CommitOutcome(over[6]) if over else group_history.CommitOutcome.UNKNOWN
                yield group_history.OffsetCommitted(
                    member, group_history.Share(group, topic, partition), offset, serial, _us(at), completed_us, outcome
                )
            case ["fetched", asked, at, topic, partition, serial, offset]:
                yield group_history.Fetch(
                    group_history.Share(group, topic, partition), offset, serial, _us(asked), _us(at)
                )


def member_reads(paths: Iterable[Path], topic: str) -> Iterator[Read]:
    """What members read of a topic, as `strandline_sim.checks.history` checks it.

    A member is another consumer each time that it takes a partition, for it may begin anywhere.
    """
    for path in paths:
        times: dict[int, int] = {}
        for row in rows_of(path):
            match row:
                case ["taken", _, _, of, partition] if of == topic:
                    times[partition] = times.get(partition, 0) + 1
                case ["given", _, at, member, of, partition, found] if of == topic:
                    consumer = f"{member}, time {times.get(partition, 0)}"
                    for offset, client, seq in found:
                        yield Read(consumer, RecordPlace(partition, offset), RecordValue(client, seq), at)


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Offsets that follow each other as ranges."""
    numbers = count()
    for _, found in groupby(offsets, key=lambda offset: offset - next(numbers)):
        run = list(found)
        yield run[0], run[-1] + 1


def _us(at_s: float) -> int:
    return int(at_s * 1e6)


class Input(NamedTuple):
    """A record that a transaction was given, and the partition of its output."""

    partition: int
    offset: int
    value: RecordValue
    into: int


class Asked(NamedTuple):
    """A commit that was asked for and acknowledged; times are seconds of the machine's monotonic clock."""

    transactional_id: str
    asked_s: float
    ended_s: float


class TransactionHistoryWriter(HistoryWriter):
    """Writes down the transactions of one process."""

    def begun(self, name: str, transactional_id: str, group: str, inputs: Iterable[Input]) -> None:
        """Before the first record is sent."""
        rows = [[one.partition, int(one.offset), *one.value, one.into] for one in inputs]
        self._line(["begun", time.monotonic(), name, transactional_id, group, rows])

    def asked(self, name: str) -> None:
        """Before the commit is asked for."""
        self._line(["asked", time.monotonic(), name])
        self.flush()

    def ended(self, name: str, outcome: TxnOutcome, offsets: Sequence[int | None] = ()) -> None:
        """When the process knows what became of it."""
        self._line(["ended", time.monotonic(), name, outcome.value, offsets])


def transactions(paths: Iterable[Path]) -> list[Txn]:
    """The transactions of all processes, as `strandline_sim.checks.transaction_history` judges them."""
    return [txn for path in paths for txn in _transactions_of(path)]


def _transactions_of(path: Path) -> Iterator[Txn]:
    rows = list(rows_of(path))
    asked = {row[2] for row in rows if row[0] == "asked"}
    ended = {row[2]: row for row in rows if row[0] == "ended"}
    for row in rows:
        if row[0] == "begun":
            yield _txn(row, row[2] in asked, ended.get(row[2]))


def _txn(row: list[Any], is_asked: bool, end: list[Any] | None) -> Txn:
    _, begun_s, name, transactional_id, group, rows = row
    inputs = [
        Input(INPUTS_FROM + partition, offset, RecordValue(client, seq), into)
        for partition, offset, client, seq, into in rows
    ]
    unended = TxnOutcome.UNKNOWN if is_asked else TxnOutcome.ABORTED
    outcome = unended if end is None else TxnOutcome(end[3])
    offsets = end[4] if end is not None and end[4] else [None] * len(inputs)
    next_offsets = {one.partition: one.offset + 1 for one in inputs}
    return Txn(
        name=name,
        transactional_id=transactional_id,
        sends=tuple(
            Send(
                value=RecordValue(name, index),
                partition=one.into,
                invoked_s=begun_s,
                completed_s=None if offset is None or end is None else end[1],
                outcome=SendOutcome.INDEFINITE if offset is None else SendOutcome.OK,
                offset=offset,
            )
            for index, (one, offset) in enumerate(zip(inputs, offsets, strict=True))
        ),
        polls=tuple(Polled(group, RecordPlace(one.partition, one.offset), one.value) for one in inputs),
        offsets=tuple(Moved(group, partition, offset) for partition, offset in next_offsets.items()),
        outcome=outcome,
    )


def acknowledged(rows: Iterable[list[Any]]) -> Iterator[Asked]:
    """The commits among the rows of one process that were asked for and acknowledged."""
    ids: dict[str, str] = {}
    asked: dict[str, float] = {}
    for row in rows:
        match row:
            case ["begun", _, name, transactional_id, _, _]:
                ids[name] = transactional_id
            case ["asked", at, name]:
                asked[name] = at
            case ["ended", at, name, TxnOutcome.COMMITTED, _]:
                yield Asked(ids[name], asked[name], at)
