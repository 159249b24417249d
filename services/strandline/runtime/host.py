"""Decides what the two roles of one data node share: one driver, one directory of names, one set of logs.

Invariant: a promoted follower keeps its log and its core; role is state, not process (`architecture` 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from strandline.core.types import NodeEpoch, NodeId, Offset, TopicPartition
from strandline.runtime.driver import Driver
from strandline.runtime.topics import TopicDirectory


class LogSizes(Protocol):
    """What only the files know of a log, for describing it."""

    def held(self) -> Iterable[TopicPartition]:
        """Every partition with an open log."""
        ...

    def size_bytes(self, tp: TopicPartition) -> int:
        """Bytes of a log's segments, 0 without one."""
        ...

    def bytes_between(self, tp: TopicPartition, start: Offset, end: Offset) -> int:
        """Bytes of the batches between two offsets."""
        ...


@dataclass(slots=True, kw_only=True)
class Host:
    """What a role's servicer is given."""

    node_id: NodeId
    driver: Driver
    topics: TopicDirectory
    sizes: LogSizes
    disk_nearly_full: Callable[[int], bool]
    """Whether produce must be refused before ENOSPC, at a monotonic time in ms."""
    node_epoch: NodeEpoch | None = None
    """None until this process is registered."""
