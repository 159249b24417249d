"""Batches and calls below the client library: what a broken or hostile client could send, byte by byte.

Invariant: every call has a deadline, and nothing is repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import crc32c
from running_cluster import CALL_S, Probe

from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.v1 import follower_service_pb2 as follower_pb, leader_service_pb2 as leader_pb, partition_pb2

_CRC = slice(17, 21)
_AFTER_CRC = 21
_TIMESTAMP_MS = 1_700_000_000_000


def batch(*values: bytes, producer: tuple[int, int] | None = None, sequence: int = -1) -> bytes:
    """A valid batch; ``producer`` is (id, epoch)."""
    return encode_batch(
        [NewRecord(None, value, _TIMESTAMP_MS) for value in values],
        producer_id=producer[0] if producer else None,
        producer_epoch=producer[1] if producer else -1,
        base_sequence=sequence,
    )


def patched(sound: bytes, at: int, form: str, value: int, *, with_crc: bool = True) -> bytes:
    """The batch with one header field replaced, and a CRC that matches it unless given otherwise."""
    content = bytearray(sound)
    struct.pack_into(form, content, at, value)
    if with_crc:
        content[_CRC] = struct.pack(">I", crc32c.crc32c(bytes(content[_AFTER_CRC:])))
    return bytes(content)


def produce_request(
    topic: str, records: bytes, *, acks: int = -1, partition: int = 0, timeout_ms: int = 3_000
) -> leader_pb.ProduceRequest:
    """A produce of one batch."""
    row = leader_pb.ProducePartition(index=partition, records=records)
    return leader_pb.ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[leader_pb.ProduceTopic(name=topic, partition_data=[row])]
    )


async def produce(
    probe: Probe,
    node_id: int,
    topic: str,
    records: bytes,
    *,
    acks: int = -1,
    partition: int = 0,
    timeout_ms: int = 3_000,
) -> leader_pb.ProducePartitionResponse:
    """Produces one batch to one node; returns its partition's answer."""
    request = produce_request(topic, records, acks=acks, partition=partition, timeout_ms=timeout_ms)
    answer = await probe.leader_service(node_id).Produce(request, timeout=CALL_S)
    return answer.responses[0].partition_responses[0]


async def append(probe: Probe, topic: str, *values: bytes) -> int:
    """Appends values as one batch, acks=all, to the leader; returns their base offset."""
    answer = await produce(probe, await probe.leader(topic), topic, batch(*values))
    assert answer.error_code == 0, answer.error_message
    return answer.base_offset


async def fetch(
    probe: Probe, node_id: int, topic: str, offset: int = 0, *, partition: int = 0, epoch: int | None = None
) -> partition_pb2.FetchPartitionResponse:
    """A consumer's fetch from a leader, answered at once."""
    row = partition_pb2.FetchPartition(partition=partition, fetch_offset=offset, current_leader_epoch=epoch)
    request = leader_pb.FetchRequest(topics=[partition_pb2.FetchTopic(topic=topic, partitions=[row])])
    answer = await probe.leader_service(node_id).Fetch(request, timeout=CALL_S)
    return answer.responses[0].partitions[0]


async def fetch_at_follower(
    probe: Probe, node_id: int, topic: str, offset: int = 0, *, max_wait_ms: int = 0
) -> partition_pb2.FetchPartitionResponse:
    """A consumer's fetch from a follower."""
    row = partition_pb2.FetchPartition(partition=0, fetch_offset=offset)
    request = follower_pb.FollowerServiceFetchRequest(
        max_wait_ms=max_wait_ms, topics=[partition_pb2.FetchTopic(topic=topic, partitions=[row])]
    )
    answer = await probe.follower_service(node_id).Fetch(request, timeout=CALL_S)
    return answer.responses[0].partitions[0]


def values_of(payload: bytes) -> list[bytes]:
    """The values in fetched batches."""
    return [record.value or b"" for each in _cut(payload) for record in decode_batch(each)]


def _cut(payload: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(payload):
        (length,) = struct.unpack_from(">i", payload, position + 8)
        yield payload[position : position + 12 + length]
        position += 12 + length


async def all_values(probe: Probe, topic: str) -> list[bytes]:
    """Every committed value of partition 0, read from its leader."""
    leader = await probe.leader(topic)
    found: list[bytes] = []
    while True:
        answer = await fetch(probe, leader, topic, len(found))
        assert answer.error_code == 0, answer.error_message
        if not answer.records:
            return found
        found += values_of(answer.records)
