"""Logs that have one name after the other: a topic that was deleted and made again, before this node heard of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.core.types import NodeId, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.storage.directory import DataDirectory
from strandline.storage.log import LogSettings

OLD, NEW = TopicPartition("old-id", 0), TopicPartition("new-id", 0)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[DirectoryLogs]:
    """The logs of an empty directory."""
    directory = DataDirectory.open(tmp_path / "node", node_id=NodeId(1))
    found = DirectoryLogs(directory, LogSettings())
    yield found
    found.close(clean=True)


def test_the_log_of_the_earlier_topic_is_closed(logs: DirectoryLogs) -> None:
    """The new topic's log takes the name; the old one is held no more."""
    logs.open(OLD, "t")
    logs.open(NEW, "t")

    assert list(logs.held()) == [NEW]


def test_the_log_of_another_partition_or_topic_stays(logs: DirectoryLogs) -> None:
    """Only the same name is taken."""
    others = [TopicPartition("old-id", 1), TopicPartition("other", 0)]
    logs.open(others[0], "t")
    logs.open(others[1], "u")
    logs.open(OLD, "t")

    assert set(logs.held()) == {*others, OLD}


def test_a_late_deletion_of_the_earlier_topic_leaves_the_name_to_the_new_one(logs: DirectoryLogs) -> None:
    """Whatever order the two words come in, a third topic of that name closes the second one's log."""
    logs.open(OLD, "t")
    logs.open(NEW, "t")
    logs.delete(OLD)
    third = TopicPartition("third-id", 0)
    logs.open(third, "t")

    assert list(logs.held()) == [third]
