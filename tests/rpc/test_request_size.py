"""How many entries one request may have."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.rpc.interceptors import names_too_much
from strandline.v1 import controller_service_pb2 as controller
from strandline.v1 import leader_service_pb2 as leader
from strandline.v1 import partition_pb2, record_pb2

PARTITIONS = [partition_pb2.FetchPartition() for _ in range(50)]
HEADERS = [record_pb2.SimpleRecord(headers=[record_pb2.RecordHeader()] * 9) for _ in range(10)]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (leader.FetchRequest(topics=[partition_pb2.FetchTopic(partitions=PARTITIONS)] * 2), 102),
        (leader.DescribePartitionsRequest(topics=[partition_pb2.TopicPartitions(partitions=[1] * 99)]), 100),
        (
            leader.ProduceRequest(
                topic_data=[leader.ProduceTopic(partition_data=[leader.ProducePartition(simple_records=HEADERS)])]
            ),
            102,
        ),
        (controller.CreateTopicsRequest(topics=[controller.CreatableTopic(configs={"a": "1", "b": "2"})] * 3), 9),
        (controller.ListNodesRequest(), 0),
    ],
    ids=["fetch", "packed numbers", "records and their headers", "maps", "nothing"],
)
def test_entries_are_counted_at_every_depth(message: Any, named: int) -> None:
    """A request is rejected exactly when all its repeated fields together have more entries than the limit."""
    assert not names_too_much(message, named)
    assert named == 0 or names_too_much(message, named - 1)
