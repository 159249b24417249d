"""Histories of clients, of records and of transactions (I37 to I39): each anomaly is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline_sim.checks.history import (
    Anomaly,
    EndAnswer,
    Names,
    Operation,
    Read,
    RecordPlace,
    RecordValue,
    Seek,
    Send,
    SendOutcome,
    anomalies,
)
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
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import PROFILES, draw_shape
from strandline_sim.world.world import World

OK, DEFINITE, INDEFINITE = SendOutcome.OK, SendOutcome.DEFINITE, SendOutcome.INDEFINITE


def send(
    seq: int,
    offset: int | None = None,
    *,
    at: float | None = None,
    took: float = 0.5,
    outcome: SendOutcome = OK,
    client: str = "p",
    partition: int = 0,
) -> Send:
    """A send of value ``seq``, invoked at second ``seq`` unless given otherwise."""
    began = float(seq) if at is None else at
    return Send(
        value=RecordValue(client, seq),
        partition=partition,
        invoked_s=began,
        completed_s=None if outcome is INDEFINITE else began + took,
        outcome=outcome,
        offset=offset,
    )


def read(offset: int, seq: int, *, at: float = 100.0, by: str = "c", client: str = "p") -> Read:
    """A consumer received value ``seq`` at ``offset``."""
    return Read(consumer=by, place=RecordPlace(0, offset), value=RecordValue(client, seq), at_s=at)


def seek(offset: int, by: str = "c") -> Seek:
    """A consumer goes to ``offset``."""
    return Seek(consumer=by, place=RecordPlace(0, offset))


def end(offset: int, at: float, took: float = 0.5) -> EndAnswer:
    """A leader returned the partition's end."""
    return EndAnswer(partition=0, offset=offset, invoked_s=at, completed_s=at + took)


def names(*operations: Operation) -> set[str]:
    """The names of all anomalies found."""
    return {anomaly.name for anomaly in anomalies(operations)}


TWO = (send(0, 0), send(1, 1), seek(0), read(0, 0), read(1, 1))


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("lost-write", [send(0, 0), send(1, 1), seek(0), read(0, 7), read(1, 1)]),
        ("lost-write", [send(0, 0), send(1, 1), seek(1), read(1, 1)]),
        ("inconsistent-offsets", [*TWO, seek(0, "d"), read(0, 9, by="d"), send(9, outcome=INDEFINITE)]),
        ("duplicate", [*TWO, read(2, 0)]),
        ("unseen", [send(0, 0), send(1, 1), seek(0), read(0, 0)]),
        ("phantom", [*TWO, send(2, outcome=DEFINITE), read(2, 2)]),
        ("phantom", [*TWO, read(2, 2)]),
        ("poll-skip", [*TWO, send(2, 2), seek(0, "d"), read(0, 0, by="d"), read(2, 2, by="d"), read(2, 2)]),
        ("nonmonotonic-poll", [*TWO, read(0, 0)]),
        ("nonmonotonic-send", [send(0, 1), send(1, 0), seek(0), read(0, 1), read(1, 0)]),
        ("realtime", [send(0, 1), send(1, 0, client="q"), seek(0), read(0, 1, client="q"), read(1, 0)]),
        ("early-read", [send(0, 0, at=50.0), seek(0), read(0, 0, at=49.0)]),
        ("end-regress", [*TWO, end(2, at=10.0), end(1, at=11.0)]),
    ],
)
def test_each_anomaly_is_found(name: str, history: list[Operation]) -> None:
    """One tiny history that no correct log produces, and its name."""
    assert name in names(*history)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(
            [send(0, 0, took=9.0), send(1, 1), seek(0), read(0, 0), read(1, 1)], id="a retry that landed once"
        ),
        pytest.param([*TWO, seek(0), read(0, 0), read(1, 1)], id="read again after a seek"),
        pytest.param([*TWO, send(2, outcome=INDEFINITE), read(2, 2)], id="an indefinite send that landed"),
        pytest.param([*TWO, send(2, outcome=INDEFINITE)], id="an indefinite send that did not"),
        pytest.param([*TWO, send(2, outcome=DEFINITE)], id="a definite failure that was never read"),
        pytest.param(
            [send(0, 1, took=3.0), send(1, 0, client="q"), seek(0), read(0, 1, client="q"), read(1, 0)],
            id="sends that overlap, in either order",
        ),
        pytest.param([*TWO, end(2, at=10.0, took=5.0), end(1, at=11.0)], id="answers that overlap"),
        pytest.param([send(0, 0), send(1, 2), seek(0), read(0, 0), read(2, 1)], id="an offset that was never seen"),
    ],
)
def test_what_a_correct_log_may_do_is_no_anomaly(history: list[Operation]) -> None:
    """A tricky history that a correct log can produce has no anomaly."""
    assert names(*history) == set()


def test_what_could_not_be_read_is_not_unseen() -> None:
    """A loss cannot be claimed for a partition that stays without a leader; for the others it can."""
    history = [send(0, 0), seek(0), read(0, 0), send(1, 1), send(2, 0, partition=1)]

    assert {a.sentence[:3] for a in anomalies(history)} == {"p/1", "p/2"}
    assert {a.sentence[:3] for a in anomalies(history, unreadable={1})} == {"p/1"}


# One object for each value and place of a run: the verdict over a history is the same as without sharing.


def history_of(seed: int) -> list[Operation]:
    """What the clients of one run saw, in the objects that the run created."""
    world = World(draw_shape(seed, PROFILES["swarm"]))
    assert run_world(world).violation is None
    return world.history


def apart(operations: list[Operation]) -> list[Operation]:
    """The same history in which no two reads share an object, so that none is skipped as known."""
    return [
        replace(each, place=RecordPlace(*each.place), value=RecordValue(*each.value))
        if isinstance(each, Read)
        else each
        for each in operations
    ]


def damaged(operations: list[Operation], every: int) -> list[Operation]:
    """The same history in which now and then a read got the value of the read before it, or is missing."""
    found: list[Operation] = []
    before: RecordValue | None = None
    for number, each in enumerate(operations):
        if isinstance(each, Read):
            if number % every == 0 and before is not None:
                each = replace(each, value=before)
            elif number % every == 1:
                continue
            before = each.value
        found.append(each)
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("every", [7, 97, 1009])
def test_shared_objects_hide_no_anomaly(every: int) -> None:
    """A damaged history shows the same anomalies, in the same order, whether its reads share objects or not."""
    history = damaged(history_of(2), every)
    shared = anomalies(history)

    assert shared
    assert {each.name for each in shared} >= {"inconsistent-offsets", "duplicate", "poll-skip"}
    assert shared == anomalies(apart(history))


def test_a_whole_history_is_whole_either_way() -> None:
    """A run that broke nothing has a history without anomalies, in shared objects and in separate ones."""
    history = history_of(1)

    assert anomalies(history) == anomalies(apart(history)) == []


def test_equal_names_are_one_object() -> None:
    """Repeated calls for the same batch or place, in any order, return the same objects."""
    names = Names()
    late, early = names.place(0, 9), names.place(0, 2)
    first = names.values((3 << 24) | 5, 2)

    assert (late, early, names.place(1, 2)) == (RecordPlace(0, 9), RecordPlace(0, 2), RecordPlace(1, 2))
    assert names.place(0, 9) is late
    assert first == [RecordValue("p3", 5), RecordValue("p3", 6)]
    assert all(one is other for one, other in zip(first, names.values((3 << 24) | 5, 2), strict=True))


# What clients saw of transactions (I37 to I39): each anomaly has a history that is found, and one that is not.


COMMITTED, ABORTED, UNKNOWN = TxnOutcome.COMMITTED, TxnOutcome.ABORTED, TxnOutcome.UNKNOWN
END = [ReadUpTo(0, 100), ReadUpTo(1, 100)]


def acked(value: str, partition: int, offset: int) -> Send:
    """An acknowledged send; a value is a letter."""
    return Send(
        value=RecordValue(value, 0),
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
        polls=tuple(Polled("g", RecordPlace(9, int(each)), RecordValue("input", int(each))) for each in polls),
        offsets=() if offset is None else (Moved("g", 9, offset),),
        outcome=outcome,
    )


def received(value: str, partition: int, offset: int) -> Read:
    """A record that a reader was given."""
    return Read("c", RecordPlace(partition, offset), RecordValue(value, 0), 2.0)


def found(*history: TxnOperation) -> list[str]:
    """The names of what is wrong, once partitions 0 and 1 were read to their ends."""
    return [anomaly.name for anomaly in transaction_anomalies([*history, *END]).anomalies]


PAIR = (acked("a", 0, 1), acked("b", 1, 1))
BOTH_READ = (received("a", 0, 1), received("b", 1, 1))


@pytest.mark.parametrize(
    ("history", "name"),
    [
        ([txn("t", *PAIR, outcome=ABORTED), received("a", 0, 1)], "G1a"),
        ([txn("t", *PAIR), received("a", 0, 1)], "torn"),
        ([txn("t", *PAIR, outcome=UNKNOWN), received("b", 1, 1)], "torn"),
        ([txn("t", *PAIR)], "lost"),
        ([txn("t", *PAIR), *BOTH_READ, received("a", 0, 7)], "duplicate"),
        ([txn("t", *PAIR), received("a", 0, 7), received("b", 1, 1)], "duplicate"),
        ([txn("t", polls="0", offset=1), txn("u", polls="0", offset=1), GroupAt("g", 9, 1)], "duplicate"),
        ([txn("t", polls="0", offset=1), GroupAt("g", 9, 0)], "lost-offset"),
        ([txn("t", *PAIR, outcome=UNKNOWN, polls="0", offset=1), *BOTH_READ, GroupAt("g", 9, 0)], "lost-offset"),
        ([txn("t", polls="0", offset=1, outcome=ABORTED), GroupAt("g", 9, 1)], "lost-offset"),
        ([txn("t", *PAIR, outcome=UNKNOWN, polls="0", offset=1), GroupAt("g", 9, 1)], "lost-offset"),
    ],
    ids=[
        "aborted and read", "half of it", "half of an unknown one", "nothing of it", "twice", "elsewhere than said",
        "two outputs of one input", "output without offset", "output without offset, by what was read",
        "offset without output", "offset without output, by what was read",
    ],
)  # fmt: skip
def test_what_is_not_atomic_is_found(history: list[TxnOperation], name: str) -> None:
    """There is one anomaly, under its name."""
    assert found(*history) == [name]


@pytest.mark.parametrize(
    "history",
    [
        [txn("t", *PAIR, outcome=ABORTED)],
        [txn("t", *PAIR), *BOTH_READ],
        [txn("t", *PAIR, outcome=UNKNOWN), *BOTH_READ],
        [txn("t", *PAIR, outcome=UNKNOWN)],
        [txn("t", acked("a", 0, 200)), ReadUpTo(0, 200)],
        [txn("t", acked("a", 5, 1))],
        [txn("t", *PAIR), *BOTH_READ, received("a", 0, 1)],
        [txn("t", polls="0", offset=1), txn("u", polls="0", offset=1, outcome=ABORTED), GroupAt("g", 9, 1)],
        [txn("t", polls="0", offset=1), txn("u", polls="12", offset=3), GroupAt("g", 9, 3)],
        [txn("t", *PAIR, outcome=UNKNOWN, polls="0", offset=1), *BOTH_READ, GroupAt("g", 9, 1)],
        [txn("t", *PAIR, outcome=UNKNOWN, polls="0", offset=1), GroupAt("g", 9, 0)],
        [txn("t", polls="0", offset=1, outcome=UNKNOWN), GroupAt("g", 9, 1)],
        [txn("t", polls="0", offset=1, outcome=UNKNOWN), GroupAt("g", 9, 0)],
    ],
    ids=[
        "aborted and unread", "read whole", "unknown and read whole", "unknown and unread", "not below the LSO yet",
        "of a partition without a reader", "read by two", "tried again", "one after another", "unknown, all of it",
        "unknown, nothing of it", "unknown, offsets alone moved", "unknown, offsets alone did not move",
    ],
)  # fmt: skip
def test_what_is_atomic_is_not_found(history: list[TxnOperation]) -> None:
    """A history of atomic transactions has no anomaly."""
    assert found(*history) == []


def _reads_of(name: str, writes: str, at: int, reads: str, read_at: int) -> Txn:
    polled = Polled("g", RecordPlace(0, read_at), RecordValue(reads, 0))
    return Txn(
        name=name, transactional_id=name, sends=(acked(writes, 0, at),), polls=(polled,), outcome=TxnOutcome.COMMITTED
    )


def test_transactions_that_read_each_other_are_found() -> None:
    """G1c: each is the cause of the other."""
    assert found(_reads_of("t", "a", 0, "b", 1), _reads_of("u", "b", 1, "a", 0)) == ["G1c"]


def test_a_transaction_that_reads_itself_is_found() -> None:
    """G1c: what it reads as committed, it has not committed yet."""
    assert found(_reads_of("t", "a", 0, "a", 0)) == ["G1c"]


def test_a_transaction_that_reads_one_before_it_is_right() -> None:
    """A chain of reads is no circle."""
    assert found(_reads_of("t", "a", 0, "x", 9), _reads_of("u", "b", 1, "a", 0), received("b", 0, 1)) == []


def _interleaved(first: str, second: str) -> list[TxnOperation]:
    one = txn("t", acked("a", 0, 0), acked("b", 0, 2), of=first)
    return [one, txn("u", acked("c", 0, 1), of=second), *(received(v, 0, o) for v, o in (("a", 0), ("c", 1), ("b", 2)))]


def test_writes_of_one_transactional_id_among_each_other_are_found() -> None:
    """G0: a late send of one transaction lies in the next one of its id."""
    assert found(*_interleaved("x", "x")) == ["G0"]


def test_an_aborted_transaction_counts_for_the_order_of_its_id() -> None:
    """G0 by acknowledgements alone, in two partitions: no reader is given what was aborted."""
    first = txn("t", acked("a", 0, 0), acked("b", 1, 5), of="x", outcome=ABORTED)

    assert found(first, txn("u", acked("c", 0, 1), acked("d", 1, 4), of="x", outcome=ABORTED)) == ["G0"]


def test_writes_of_two_producers_among_each_other_are_counted() -> None:
    """No isolation is promised: one cycle of writes, and nothing is wrong."""
    verdict = transaction_anomalies([*_interleaved("x", "y"), *END])

    assert (verdict.anomalies, verdict.write_cycles) == ([], 1)


def test_a_reader_of_an_open_neighbour_is_right() -> None:
    """T writes first in one partition and reads in the other what U, behind it in the first, has committed."""
    one = Txn(
        name="t",
        transactional_id="t",
        sends=(acked("a", 0, 0), acked("z", 0, 9)),
        polls=(Polled("g", RecordPlace(1, 0), RecordValue("c", 0)),),
        outcome=TxnOutcome.COMMITTED,
    )
    other = txn("u", acked("b", 0, 1), acked("c", 1, 0))

    assert found(one, other, received("a", 0, 0), received("b", 0, 1), received("z", 0, 9)) == []


def test_order_is_judged_as_that_of_any_sends() -> None:
    """The sends of a committed transaction must be read, those of an aborted one must not, an unknown one may be."""
    committed, aborted = txn("t", acked("a", 0, 0)), txn("u", acked("b", 0, 1), outcome=ABORTED)
    history = [committed, aborted, txn("v", acked("c", 0, 3), outcome=UNKNOWN)]

    def names(*reads: Read) -> list[str]:
        return [anomaly.name for anomaly in anomalies([*sends_of(history), *reads])]

    assert names(received("a", 0, 0)) == []
    assert names(received("a", 0, 0), received("c", 0, 3)) == []
    assert names(received("c", 0, 3)) == ["lost-write", "unseen"]
    assert names(received("a", 0, 0), received("b", 0, 1)) == ["phantom"]


def test_an_anomaly_says_what_it_is_about() -> None:
    """The sentence names the record and the transaction."""
    assert transaction_anomalies([txn("t", *PAIR, outcome=ABORTED), received("a", 0, 1)]).anomalies == [
        Anomaly("G1a", f"a/0 of t, which was aborted, was read at {[RecordPlace(0, 1)]}")
    ]  # fmt: skip


def test_cycles_of_a_graph() -> None:
    """Two circles that share a node are one set; a chain is none; a node that points to itself is a set of one."""
    assert cycles({"a": "b", "b": "ac", "c": "b", "d": "d", "e": "fa", "f": "g"}) == [["a", "b", "c"], ["d"]]
