"""Records that are read apart from their message: as protobuf reads them, without a copy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fuzz.target_records import agree

from strandline.rpc.convert.fetch import STREAM_ANSWERS
from strandline.rpc.convert.produce import STREAM_REQUESTS
from strandline.v1 import leader_service_pb2 as pb, partition_pb2

SIZES = (100_000, 0, 2_100_000)
"""Lengths of three and of four bytes, and a row without records."""


def _request() -> bytes:
    rows = [pb.ProducePartition(index=index, records=bytes(size)) for index, size in enumerate(SIZES)]
    topics = [pb.ProduceTopic(name=name, partition_data=rows) for name in "ab"]
    return pb.ProduceStreamRequest(
        correlation_id=1, acks=-1, topic_data=topics, transactional_id="t"
    ).SerializeToString()


def _answer(*sizes: int) -> bytes:
    rows = [
        partition_pb2.FetchPartitionResponse(
            partition_index=index, high_watermark=1 << 40, records=bytes(size), barrier=7
        )
        for index, size in enumerate(sizes)
    ]
    topics = [partition_pb2.FetchTopicResponse(topic=name, partitions=rows) for name in "ab"]
    return pb.FetchStreamResponse(correlation_id=1, responses=topics).SerializeToString()


@pytest.mark.parametrize(
    ("reader", "content"), [(STREAM_REQUESTS, _request()), (STREAM_ANSWERS, _answer(*SIZES))], ids=["request", "answer"]
)
def test_records_are_views_of_what_arrived(reader: Any, content: bytes) -> None:
    """Each row has its records, which are not copied, and the message has them no more."""
    found = reader.read(content)

    assert [len(one) for one in found.records] == [*SIZES, *SIZES]
    assert all(one.obj is content for one in found.records)
    assert (found.size_bytes, found.message.ByteSize() < 1_000) == (len(content), True)
    agree(type(found.message), content)


def test_many_small_rows_are_left_to_protobuf() -> None:
    """Looking at their fields would take longer than copying them, and a hostile message would stop the event loop."""
    content = _answer(*[100] * 1_000)
    found = STREAM_ANSWERS.read(content)

    assert len(found.records) == 2_000
    assert not any(one.obj is content for one in found.records)
