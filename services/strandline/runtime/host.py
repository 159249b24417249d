"""What the two roles of one data node share: one driver, one directory of names, one set of logs.

Invariant: a promoted follower keeps its log and its core; role is state, not process
(ARCHITECTURE.md#roles-and-processes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from strandline.core.types import NodeEpoch, NodeId, Offset, TopicPartition
from strandline.runtime.aside import Aside
from strandline.runtime.driver import Driver
from strandline.runtime.ports import Core
from strandline.runtime.topics import TopicDirectory


class LogSizes(Protocol):
    """What only the files know of a log, for describing it."""

    def held(self) -> Iterable[TopicPartition]:
        """Every partition with an open log."""
        ...

    def size_bytes(self, tp: TopicPartition) -> int:
        """Bytes of a log's segments, 0 without one."""
        ...

    def retention_waits_until_ms(self, tp: TopicPartition) -> int | None:
        """The time in the future that retention of a log waits for; None if it does not wait."""
        ...

    def bytes_between(self, tp: TopicPartition, start: Offset, end: Offset) -> int:
        """Bytes of the batches between two offsets."""
        ...


@dataclass(slots=True, kw_only=True)
class Host:
    """What a role's servicer is given."""

    node_id: NodeId
    driver: Driver[Core]
    topics: TopicDirectory
    sizes: LogSizes
    low_space: Callable[[int], str | None]
    """How much is free, in a sentence, if produce must be refused before ENOSPC, at a monotonic time in ms."""
    node_epoch: NodeEpoch | None = None
    """None until this process is registered."""
    expanding: Aside = field(default_factory=lambda: Aside("expanding"))
    """Where batches are expanded that producers send."""
    unpacking: Aside = field(default_factory=lambda: Aside("unpacking"))
    """Where batches are made of single records, and records taken out of batches, one by one or by time."""

    def close(self) -> None:
        """Begin nothing more beside the event loop."""
        self.expanding.close()
        self.unpacking.close()
