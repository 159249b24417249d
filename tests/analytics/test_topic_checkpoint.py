"""The position of a stream as its checkpoint keeps it."""

from __future__ import annotations

import pytest

from strandline.client import TopicPartition
from strandline_analytics.topic.checkpoint import read, written
from strandline_analytics.topic.cluster import Found
from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.ranges import Extent

FOUND = Found(
    {"a": "id-a", "b": "id-b"},
    {TopicPartition("a", 0): Extent(0, 9), TopicPartition("b", 1): Extent(0, 9)},
)
OFFSETS = {TopicPartition("a", 0): 3, TopicPartition("b", 1): 4}


def test_a_position_is_read_as_it_was_written() -> None:
    """Every partition keeps its offset, and every topic its id."""
    position = written(FOUND, OFFSETS)

    assert position == {
        "a": {"topic_id": "id-a", "offsets": {"0": 3}},
        "b": {"topic_id": "id-b", "offsets": {"1": 4}},
    }
    assert read(position, FOUND, fail_on_data_loss=True) == OFFSETS


def test_a_topic_that_is_gone_is_loss() -> None:
    """It is reported, or with failOnDataLoss false left out."""
    position = written(FOUND, OFFSETS)
    left = Found({"a": "id-a"}, {TopicPartition("a", 0): Extent(0, 9)})

    with pytest.raises(TopicFailed, match="failOnDataLoss: topic 'b' of the checkpoint is not read any more"):
        read(position, left, fail_on_data_loss=True)
    assert read(position, left, fail_on_data_loss=False) == {TopicPartition("a", 0): 3}


@pytest.mark.parametrize(
    "position", [{"topic_id": "id-a", "offsets": {"0": 3}}, {"a": {"topic_id": "x", "offsets": {}}}]
)
def test_a_position_of_something_else_is_refused(position: dict[str, object]) -> None:
    """Neither another source's checkpoint nor that of an earlier topic of the name is continued."""
    with pytest.raises(TopicFailed, match="begin with a new checkpointLocation"):
        read(position, FOUND, fail_on_data_loss=False)
