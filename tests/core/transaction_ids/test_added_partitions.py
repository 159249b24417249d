"""What a leader that asks about a partition is answered: T91, and what is added to a transaction (X9)."""

from __future__ import annotations

from ids_alone import P0, P1, Q0, IdsAlone, code

from strandline.core.transactions.records import TxnState
from strandline.core.types import TopicPartition

ADDED = "PartitionsAdded()"


def test_whoever_is_not_the_producer_is_refused() -> None:
    """T91: an unknown id and another producer id are INVALID_PRODUCER_ID_MAPPING, another epoch PRODUCER_FENCED."""
    alone = IdsAlone()

    assert code(alone.add(P0, by=(50, 5))) == "INVALID_PRODUCER_ID_MAPPING"
    alone.at(5)
    assert code(alone.add(P0, by=(51, 5))) == "INVALID_PRODUCER_ID_MAPPING"
    assert code(alone.add(P0, by=(50, 4))) == "PRODUCER_FENCED"
    assert code(alone.add(P0, by=(50, 6))) == "PRODUCER_FENCED"
    assert alone.value().partitions == ()


def test_the_next_transaction_waits_until_the_one_before_is_complete() -> None:
    """T91: in PrepareCommit and PrepareAbort the next identity is CONCURRENT_TRANSACTIONS, also one with the next
    producer id (X5)."""
    for state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
        alone = IdsAlone()
        alone.at(5, state, partitions=(P0,), start_ms=1)
        assert code(alone.add(P0, by=(50, 5))) == "CONCURRENT_TRANSACTIONS"
        assert code(alone.add(P0, by=(50, 4))) == "PRODUCER_FENCED"
        alone.at(32_767, state, partitions=(P0,), start_ms=1, next_producer_id=60)
        assert code(alone.add(P0, by=(60, 0))) == "CONCURRENT_TRANSACTIONS"
        assert code(alone.add(P0, by=(50, 32_767))) == "PRODUCER_FENCED"


def test_looking_up_adds_nothing() -> None:
    """T91: with verify_only a partition that the transaction lacks is TRANSACTION_ABORTABLE, also without one open."""
    alone = IdsAlone()
    identity = alone.begun(P0)
    written = len(alone.log)

    assert code(alone.add(P1, by=identity, verify_only=True)) == "TRANSACTION_ABORTABLE"
    assert code(alone.add(P0, by=identity, verify_only=True)) == ADDED
    assert len(alone.log) == written
    after = alone.end(identity)
    alone.answer()
    assert code(alone.add(P0, by=after, verify_only=True)) == "TRANSACTION_ABORTABLE"


def test_a_partition_is_written_down_once() -> None:
    """The first partition begins the transaction, a further one is added, a known one writes nothing."""
    alone = IdsAlone()
    identity = alone.begun(Q0)
    begun_ms = alone.value().start_ms
    alone.now_ms += 10

    assert code(alone.add(P1, by=identity)) == ADDED
    written = len(alone.log)
    assert code(alone.add(P1, Q0, by=identity)) == ADDED

    assert len(alone.log) == written
    assert alone.value().partitions == (P1, Q0)
    assert alone.value().start_ms == begun_ms == alone.context.unix_ms - 10


def test_a_partition_that_this_node_has_not_heard_of_is_refused() -> None:
    """A topic id that is not in the metadata may be newer than it: were it added, it would count as deleted (X8)."""
    alone = IdsAlone()
    identity = alone.init()
    assert isinstance(identity, tuple)

    assert code(alone.add(TopicPartition("new-id", 0), by=identity)) == "UNKNOWN_TOPIC_ID"
    assert code(alone.add(TopicPartition("p-id", 2), by=identity)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert alone.state == "Empty"
