"""What clients saw of transactions (I37 to I39): each anomaly has a history that is found, and one that is not."""

from __future__ import annotations

import pytest

from strandline_sim.checks.history import Anomaly, Place, Read, Send, SendOutcome, Value, anomalies
from strandline_sim.checks.transaction_history import (
    GroupAt,
    Moved,
    Polled,
    ReadUpTo,
    Txn,
    TxnOperation,
    TxnOutcome,
    cycles,
    sends_of,
    transaction_anomalies,
)

COMMITTED, ABORTED, UNKNOWN = TxnOutcome.COMMITTED, TxnOutcome.ABORTED, TxnOutcome.UNKNOWN
END = [ReadUpTo(0, 100), ReadUpTo(1, 100)]


def send(value: str, partition: int, offset: int) -> Send:
    """An acknowledged send; a value is a letter."""
    return Send(
        value=Value(value, 0),
        partition=partition,
        invoked_s=0.0,
        completed_s=1.0,
        outcome=SendOutcome.OK,
        offset=offset,
    )


def txn(
    name: str, *sends: Send, outcome: TxnOutcome = COMMITTED, polls: str = "", offset: int | None = None, of: str = ""
) -> Txn:
    """A transaction; ``polls``: the offsets of partition 9 that it was given, and commits ``offset`` for."""
    return Txn(
        name=name,
        transactional_id=of or name,
        sends=sends,
        polls=tuple(Polled("g", Place(9, int(each)), Value("input", int(each))) for each in polls),
        offsets=() if offset is None else (Moved("g", 9, offset),),
        outcome=outcome,
    )


def read(value: str, partition: int, offset: int) -> Read:
    """A record that a reader was given."""
    return Read("c", Place(partition, offset), Value(value, 0), 2.0)


def found(*history: TxnOperation) -> list[str]:
    """The names of what is wrong, once partitions 0 and 1 were read to their ends."""
    return [anomaly.name for anomaly in transaction_anomalies([*history, *END]).anomalies]


TWO = (send("a", 0, 1), send("b", 1, 1))
BOTH_READ = (read("a", 0, 1), read("b", 1, 1))


@pytest.mark.parametrize(
    ("history", "name"),
    [
        ([txn("t", *TWO, outcome=ABORTED), read("a", 0, 1)], "G1a"),
        ([txn("t", *TWO), read("a", 0, 1)], "torn"),
        ([txn("t", *TWO, outcome=UNKNOWN), read("b", 1, 1)], "torn"),
        ([txn("t", *TWO)], "lost"),
        ([txn("t", *TWO), *BOTH_READ, read("a", 0, 7)], "duplicate"),
        ([txn("t", *TWO), read("a", 0, 7), read("b", 1, 1)], "duplicate"),
        ([txn("t", polls="0", offset=1), txn("u", polls="0", offset=1), GroupAt("g", 9, 1)], "duplicate"),
        ([txn("t", polls="0", offset=1), GroupAt("g", 9, 0)], "lost-offset"),
        ([txn("t", *TWO, outcome=UNKNOWN, polls="0", offset=1), *BOTH_READ, GroupAt("g", 9, 0)], "lost-offset"),
        ([txn("t", polls="0", offset=1, outcome=ABORTED), GroupAt("g", 9, 1)], "lost-offset"),
        ([txn("t", *TWO, outcome=UNKNOWN, polls="0", offset=1), GroupAt("g", 9, 1)], "lost-offset"),
    ],
    ids=[
        "aborted and read", "half of it", "half of an unknown one", "nothing of it", "twice", "elsewhere than said",
        "two outputs of one input", "output without offset", "output without offset, by what was read",
        "offset without output", "offset without output, by what was read",
    ],
)  # fmt: skip
def test_what_is_not_atomic_is_found(history: list[TxnOperation], name: str) -> None:
    """One anomaly, under its name."""
    assert found(*history) == [name]


@pytest.mark.parametrize(
    "history",
    [
        [txn("t", *TWO, outcome=ABORTED)],
        [txn("t", *TWO), *BOTH_READ],
        [txn("t", *TWO, outcome=UNKNOWN), *BOTH_READ],
        [txn("t", *TWO, outcome=UNKNOWN)],
        [txn("t", send("a", 0, 200)), ReadUpTo(0, 200)],
        [txn("t", send("a", 5, 1))],
        [txn("t", *TWO), *BOTH_READ, read("a", 0, 1)],
        [txn("t", polls="0", offset=1), txn("u", polls="0", offset=1, outcome=ABORTED), GroupAt("g", 9, 1)],
        [txn("t", polls="0", offset=1), txn("u", polls="12", offset=3), GroupAt("g", 9, 3)],
        [txn("t", *TWO, outcome=UNKNOWN, polls="0", offset=1), *BOTH_READ, GroupAt("g", 9, 1)],
        [txn("t", *TWO, outcome=UNKNOWN, polls="0", offset=1), GroupAt("g", 9, 0)],
        [txn("t", polls="0", offset=1, outcome=UNKNOWN), GroupAt("g", 9, 1)],
        [txn("t", polls="0", offset=1, outcome=UNKNOWN), GroupAt("g", 9, 0)],
    ],
    ids=[
        "aborted and unread", "read whole", "unknown and read whole", "unknown and unread", "not below the LSO yet",
        "of a partition that nobody reads", "read by two", "tried again", "one after another", "unknown, all of it",
        "unknown, nothing of it", "unknown, offsets alone moved", "unknown, offsets alone did not move",
    ],
)  # fmt: skip
def test_what_is_atomic_is_not_found(history: list[TxnOperation]) -> None:
    """Nothing is wrong."""
    assert found(*history) == []


def _reads_of(name: str, writes: str, at: int, reads: str, read_at: int) -> Txn:
    polled = Polled("g", Place(0, read_at), Value(reads, 0))
    return Txn(
        name=name, transactional_id=name, sends=(send(writes, 0, at),), polls=(polled,), outcome=TxnOutcome.COMMITTED
    )


def test_transactions_that_read_each_other_are_found() -> None:
    """G1c: each is the cause of the other."""
    assert found(_reads_of("t", "a", 0, "b", 1), _reads_of("u", "b", 1, "a", 0)) == ["G1c"]


def test_a_transaction_that_reads_itself_is_found() -> None:
    """G1c: what it reads as committed, it has not committed yet."""
    assert found(_reads_of("t", "a", 0, "a", 0)) == ["G1c"]


def test_a_transaction_that_reads_one_before_it_is_right() -> None:
    """A chain of reads is no circle."""
    assert found(_reads_of("t", "a", 0, "x", 9), _reads_of("u", "b", 1, "a", 0), read("b", 0, 1)) == []


def _interleaved(first: str, second: str) -> list[TxnOperation]:
    one = txn("t", send("a", 0, 0), send("b", 0, 2), of=first)
    return [one, txn("u", send("c", 0, 1), of=second), *(read(v, 0, o) for v, o in (("a", 0), ("c", 1), ("b", 2)))]


def test_writes_of_one_transactional_id_among_each_other_are_found() -> None:
    """G0: a late send of one transaction lies in the next one of its id."""
    assert found(*_interleaved("x", "x")) == ["G0"]


def test_an_aborted_transaction_counts_for_the_order_of_its_id() -> None:
    """G0 by acknowledgements alone, in two partitions: nobody can read what was aborted."""
    first = txn("t", send("a", 0, 0), send("b", 1, 5), of="x", outcome=ABORTED)
    second = txn("u", send("c", 0, 1), send("d", 1, 4), of="x", outcome=ABORTED)

    assert found(first, second) == ["G0"]


def test_writes_of_two_producers_among_each_other_are_counted() -> None:
    """No isolation is promised: one cycle of writes, and nothing is wrong."""
    verdict = transaction_anomalies([*_interleaved("x", "y"), *END])

    assert (verdict.anomalies, verdict.write_cycles) == ([], 1)


def test_a_reader_of_an_open_neighbour_is_right() -> None:
    """T writes first in one partition and reads in the other what U, behind it in the first, has committed."""
    one = Txn(
        name="t",
        transactional_id="t",
        sends=(send("a", 0, 0), send("z", 0, 9)),
        polls=(Polled("g", Place(1, 0), Value("c", 0)),),
        outcome=TxnOutcome.COMMITTED,
    )
    other = txn("u", send("b", 0, 1), send("c", 1, 0))

    assert found(one, other, read("a", 0, 0), read("b", 0, 1), read("z", 0, 9)) == []


def test_order_is_judged_as_that_of_any_sends() -> None:
    """The sends of a committed transaction must be read, those of an aborted one must not, an unknown one may be."""
    committed, aborted = txn("t", send("a", 0, 0)), txn("u", send("b", 0, 1), outcome=ABORTED)
    history = [committed, aborted, txn("v", send("c", 0, 3), outcome=UNKNOWN)]

    def names(*reads: Read) -> list[str]:
        return [anomaly.name for anomaly in anomalies([*sends_of(history), *reads])]

    assert names(read("a", 0, 0)) == []
    assert names(read("a", 0, 0), read("c", 0, 3)) == []
    assert names(read("c", 0, 3)) == ["lost-write", "unseen"]
    assert names(read("a", 0, 0), read("b", 0, 1)) == ["phantom"]


def test_an_anomaly_says_what_it_is_about() -> None:
    """The sentence names the record and the transaction."""
    verdict = transaction_anomalies([txn("t", *TWO, outcome=ABORTED), read("a", 0, 1)])

    assert verdict.anomalies == [
        Anomaly("G1a", f"a/0 of t, which was aborted, was read at {[Place(0, 1)]}")
    ]  # fmt: skip


def test_cycles_of_a_graph() -> None:
    """Two circles that share a node are one set; a chain is none; a node that points to itself is a set of one."""
    edges = {"a": "b", "b": "ac", "c": "b", "d": "d", "e": "fa", "f": "g"}

    assert cycles(edges) == [["a", "b", "c"], ["d"]]
