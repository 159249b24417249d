"""Transactions on the wire: whose batches, how far a reader reads, what was aborted, what a replica begins with."""

from __future__ import annotations

import crc32c
import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.messages import (
    LATEST,
    FetchResult,
    OffsetQuestion,
    ProducerSnapshotAnswer,
    ServedPartition,
)
from strandline.core.types import (
    AbortedTransaction,
    LastMarker,
    Marker,
    Offset,
    OpenTransaction,
    TopicPartition,
    TransactionState,
)
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.control import encode_marker
from strandline.rpc import convert_offsets
from strandline.rpc.convert_fetch import fetch_topics, read_fetch, read_fetched
from strandline.rpc.convert_produce import read_produce
from strandline.rpc.convert_producers import read_producer_snapshot, write_producer_snapshot
from strandline.rpc.convert_records import FetchedBatches, decode_records
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import partition_pb2

TP = TopicPartition(ID, 0)
COMMITTED = partition_pb2.ISOLATION_LEVEL_READ_COMMITTED
ABORTED = AbortedTransaction(7, Offset(3), Offset(9), Offset(10))


def stored(offset: int, *, producer: int = 7) -> bytes:
    """A batch of one record that a transaction wrote."""
    batch = bytearray(encode_batch([NewRecord(None, b"v", 1)], producer_id=producer, producer_epoch=0, base_sequence=0))
    batch[22] |= 0x10
    return stamped(batch, offset)


def marker(offset: int, *, commit: bool = False, producer: int = 7) -> bytes:
    """The marker that ends it."""
    batch = encode_marker(Marker(commit, 5), producer_id=producer, producer_epoch=1, timestamp_ms=1)
    return stamped(bytearray(batch.view), offset)


def stamped(batch: bytearray, offset: int) -> bytes:
    """The batch with a sound CRC, as a leader of epoch 4 appended it."""
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    stamp(batch, offset, 4)
    return bytes(batch)


@pytest.mark.parametrize("transactional_id", [None, "", "orders"])
def test_a_produce_says_whose_transaction_it_is(transactional_id: str | None) -> None:
    """X3: absence is not the empty id."""
    topic = pb.ProduceTopic(topic_id=ID, partition_data=[pb.ProducePartition(records=stored(0))])
    message = pb.ProduceRequest(topic_data=[topic], transactional_id=transactional_id)
    event = read_produce(message, FixedTopics()).arrives(5, 6)

    assert event.transactional_id == transactional_id
    assert event.partitions[0].invalid is None


@pytest.mark.parametrize("replica", [False, True])
def test_only_a_consumer_reads_committed(replica: bool) -> None:
    """X14: the level of a replica's fetch is ignored, for it reads to the log end."""
    row = partition_pb2.FetchPartition(fetch_offset=5, current_leader_epoch=3, log_start_offset=5)
    message = pb.FetchRequest(
        cluster_id=CLUSTER,
        isolation_level=COMMITTED,
        topics=[partition_pb2.FetchTopic(topic=NAME, topic_id=ID, partitions=[row])],
    )
    if replica:
        message.replica_state.replica_id = message.replica_state.replica_epoch = 2

    assert read_fetch(message, FixedTopics()).request.read_committed is not replica


def test_an_answer_names_the_lso_and_what_was_aborted() -> None:
    """X14: producer and first offset of each, and the LSO beside the HW."""
    result = FetchResult(TP, Offset(20), Offset(0), last_stable_offset=Offset(12), aborted=(ABORTED,))
    row = fetch_topics([ServedPartition(result, b"")], (), FixedTopics())[0].partitions[0]

    assert (row.high_watermark, row.last_stable_offset) == (20, 12)
    assert [(t.producer_id, t.first_offset) for t in row.aborted_transactions] == [(7, 3)]


def test_a_follower_reads_the_marker_in_a_batch() -> None:
    """X12: the header of a control batch says what its record does, so that the core can fold it."""
    payload = stored(3) + marker(4, commit=True)
    answers = fetch_topics([ServedPartition(FetchResult(TP, Offset(5)), payload)], (), FixedTopics())
    fetched = read_fetched(answers)[0]

    assert [header.marker for header in fetched.batches] == [None, Marker(True, 5)]


def test_a_control_batch_that_is_no_marker_is_damage() -> None:
    """What a follower could not fold it does not append."""
    changed = bytearray(marker(4))
    changed[69] = 9
    answers = fetch_topics([ServedPartition(FetchResult(TP, Offset(5)), stamped(changed, 4))], (), FixedTopics())
    fetched = read_fetched(answers)[0]

    assert fetched.corrupt is not None and "no marker" in fetched.corrupt
    assert fetched.batches == ()


def test_the_latest_stable_offset_is_asked_for() -> None:
    """X14: the level is the request's, for all its questions."""
    questions = (OffsetQuestion(TP, LATEST),)
    message = convert_offsets.list_offsets_request(questions, cluster_id=CLUSTER, replica=None, read_committed=True)
    (read,) = convert_offsets.read_offset_questions(message, FixedTopics()).parts

    assert (message.isolation_level, read.read_committed) == (COMMITTED, True)


def test_decoding_leaves_out_markers_and_aborted_records() -> None:
    """X14: with decode the server does what a client does, and says where to go on behind all that was read."""
    payload = b"".join((stored(3), stored(4, producer=8), marker(5), marker(6, producer=8, commit=True)))
    found = decode_records([FetchedBatches(TP, payload, (ABORTED,))], {TP: Offset(3)})[TP]

    assert [record.offset for record in found.records] == [4]
    assert found.next_offset == 7
    row = fetch_topics([ServedPartition(FetchResult(TP), payload)], (), FixedTopics(), {TP: found})[0].partitions[0]
    assert row.next_offset == 7


def test_the_state_below_a_log_start_comes_through() -> None:
    """C43: transactions that were open there, and the markers below it."""
    state = TransactionState(
        open=(OpenTransaction(7, Offset(3)),), markers=(LastMarker(9, 32_001, 5, Offset(8), 1_700_000_000_000),)
    )
    answer = ProducerSnapshotAnswer(TP, Offset(16), transactions=state)

    assert read_producer_snapshot(write_producer_snapshot(answer), TP) == answer
