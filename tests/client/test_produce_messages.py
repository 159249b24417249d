"""The messages of a produce stream, which are encoded around their records, are those that protobuf encodes."""

from __future__ import annotations

import pytest

from strandline.client.produce.delivery import OutgoingBatch, ProducerIdentity
from strandline.client.produce.produce_link import ProduceTerms, Sent, encode_message
from strandline.core.types import Acks, TopicPartition
from strandline.records.batch import parse_header
from strandline.records.builder import BatchBuilder
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.v1 import leader_service_pb2 as pb

TOPIC_ID = "11111111-1111-1111-1111-111111111111"
IDENTITY = ProducerIdentity(7, 2)


def a_batch(partition: int, value_bytes: int, *, is_encoded: bool = False) -> OutgoingBatch:
    """One record of so many bytes; ``is_encoded``: as a user gives it to `Producer.send_encoded`."""
    batch = OutgoingBatch("t", TopicPartition(TOPIC_ID, partition), now_ms=0, deadline_ms=1e9)
    if is_encoded:
        batch.payload, batch.record_count = encode_batch([NewRecord(None, bytes(value_bytes), 5)]), 1
        batch.has_crc = True
    else:
        batch.builder = BatchBuilder()
        batch.builder.try_append(None, bytes(value_bytes), 5)
        batch.seal()
    return batch


@pytest.mark.parametrize("partition", [0, 300])
@pytest.mark.parametrize("value_bytes", [0, 40, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize("transactional_id", [None, "", "payments"])
@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_message_has_the_bytes_that_protobuf_encodes(
    partition: int, value_bytes: int, transactional_id: str | None, is_numbered: bool
) -> None:
    """For batches of any size, each field is where protobuf puts it and as it encodes it."""
    batch = a_batch(partition, value_bytes)
    if is_numbered:
        batch.identity, batch.sequence = IDENTITY, 40
    terms = ProduceTerms(Acks.ALL, 30_000, "cluster", transactional_id)
    encoded = b"".join(encode_message(terms, Sent(1 << 40, batch, 0.0)))
    records = encode_batch(
        [NewRecord(None, bytes(value_bytes), 5)],
        producer_id=7 if is_numbered else None,
        producer_epoch=2 if is_numbered else -1,
        base_sequence=40 if is_numbered else -1,
    )
    if is_numbered and transactional_id is not None:
        records = pb.ProduceStreamRequest.FromString(encoded).topic_data[0].partition_data[0].records
    row = pb.ProducePartition(index=partition, records=records)
    by_protobuf = pb.ProduceStreamRequest(
        correlation_id=1 << 40,
        cluster_id="cluster",
        acks=-1,
        timeout_ms=30_000,
        transactional_id=transactional_id,
        topic_data=[pb.ProduceTopic(topic_id=TOPIC_ID, partition_data=[row])],
    )

    assert encoded == by_protobuf.SerializeToString()


@pytest.mark.parametrize("acks", list(Acks))
def test_terms_that_are_absent_or_zero_are_sent_as_such(acks: Acks) -> None:
    """acks=0 is in the message, and a cluster that is not known is not."""
    encoded = b"".join(encode_message(ProduceTerms(acks, 1, None), Sent(1, a_batch(0, 1), 0.0)))
    message = pb.ProduceStreamRequest.FromString(encoded)

    assert message.HasField("acks") and message.acks == int(acks)
    assert not message.HasField("cluster_id") and not message.HasField("transactional_id")


def sent_records(batch: OutgoingBatch, transactional_id: str | None = None) -> bytes:
    encoded = b"".join(encode_message(ProduceTerms(Acks.ALL, 1, None, transactional_id), Sent(1, batch, 0.0)))
    return pb.ProduceStreamRequest.FromString(encoded).topic_data[0].partition_data[0].records


def test_a_batch_that_is_sent_again_has_the_same_bytes() -> None:
    """Each attempt sends the same batch; after a new number it has the new one, and a CRC that fits."""
    batch = a_batch(0, 100)
    batch.identity, batch.sequence = IDENTITY, 40
    first, second = sent_records(batch, "x"), sent_records(batch, "x")
    batch.identity, batch.sequence = ProducerIdentity(8, 0), 0
    third = sent_records(batch, "x")

    assert first == second
    assert [parse_header(each).producer for each in (first, third)] == [(7, 2, 40), (8, 0, 0)]
    assert decode_batch(first) == decode_batch(third)


def test_a_damaged_batch_of_the_user_stays_damaged_without_an_identity() -> None:
    """Its CRC is the user's, so that the leader can refuse it."""
    batch = a_batch(0, 100, is_encoded=True)
    batch.payload = batch.payload[:-1] + b"!"

    assert sent_records(batch) == batch.payload
