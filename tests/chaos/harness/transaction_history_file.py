"""What a process that transforms records in transactions writes down: lines as in `history_file`.

    ["begun", at, transaction, transactional_id, group, [[partition, offset, client, seq, into], ...]]
    ["asked", at, transaction]
    ["ended", at, transaction, outcome, [offset, ...]]

The first says which inputs a transaction was given, and to which partition the output of each goes; the output of input
i is the value ``transaction/i``. "asked" is in the kernel before the commit is asked for: without it nothing of the
transaction may ever be read, and one with it and without "ended" has an outcome that nobody knows. ``offset`` is where
the output of each input lies, in a transaction that is committed.

Invariant: partitions of inputs are numbered from `INPUTS_FROM` on in what is judged, those of outputs from 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.history_file import HistoryWriter, rows_of

from strandline_sim.checks.history import Place, Send, SendOutcome, Value
from strandline_sim.checks.transaction_history import Moved, Polled, Txn, TxnOutcome

INPUTS_FROM = 1_000
"""As `history_file.operations` numbers the second of two topics."""


class Input(NamedTuple):
    """A record that a transaction was given, and the partition of its output."""

    partition: int
    offset: int
    value: Value
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
    return [txn for path in paths for txn in _of_one_file(path)]


def _of_one_file(path: Path) -> Iterator[Txn]:
    rows = list(rows_of(path))
    asked = {row[2] for row in rows if row[0] == "asked"}
    ended = {row[2]: row for row in rows if row[0] == "ended"}
    for row in rows:
        if row[0] == "begun":
            yield _txn(row, row[2] in asked, ended.get(row[2]))


def _txn(row: list[Any], is_asked: bool, end: list[Any] | None) -> Txn:
    _, begun_s, name, transactional_id, group, rows = row
    inputs = [
        Input(INPUTS_FROM + partition, offset, Value(client, seq), into)
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
                value=Value(name, index),
                partition=one.into,
                invoked_s=begun_s,
                completed_s=None if offset is None or end is None else end[1],
                outcome=SendOutcome.INDEFINITE if offset is None else SendOutcome.OK,
                offset=offset,
            )
            for index, (one, offset) in enumerate(zip(inputs, offsets, strict=True))
        ),
        polls=tuple(Polled(group, Place(one.partition, one.offset), one.value) for one in inputs),
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
