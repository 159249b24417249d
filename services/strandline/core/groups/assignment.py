"""What an assignor is given, which assignors there are, and which of them a group uses (G24)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from strandline.core.coordinator.machine import TopicEntry
from strandline.core.groups.range_assignor import assign_range
from strandline.core.groups.subscribers import Subscriber, Target
from strandline.core.groups.uniform_assignor import assign_uniform
from strandline.core.types import TopicPartition

DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: Mapping[str, Callable[..., Target]] = {"uniform": assign_uniform, "range": assign_range}
"""Each is pure and deterministic: (subscribers sorted, topics by id, previous target) to the new target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInput:
    """All that a target follows from; a worker may hold it, for nothing in it changes."""

    group_id: str
    group_epoch: int
    assignor: str
    subscribers: tuple[Subscriber, ...]
    topics: Mapping[str, TopicEntry]
    previous: Mapping[str, tuple[TopicPartition, ...]]
    topics_digest: int

    @property
    def pairs(self) -> int:
        """Members times partitions: what computing costs at most."""
        return len(self.subscribers) * sum(topic.partition_count for topic in self.topics.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedTarget:
    """A target, and for what it was computed."""

    group_id: str
    group_epoch: int
    assignor: str
    topics_digest: int
    target: Mapping[str, tuple[TopicPartition, ...]]


def chosen_assignor(wanted: Iterable[str | None]) -> str:
    """The assignor that most members ask for, the first by name of equals; the default if none asks."""
    votes = Counter(name for name in wanted if name)
    return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)


def computed(given: AssignmentInput) -> ComputedTarget:
    """Run the assignor."""
    target = ASSIGNORS[given.assignor](given.subscribers, given.topics, given.previous)
    return ComputedTarget(
        group_id=given.group_id,
        group_epoch=given.group_epoch,
        assignor=given.assignor,
        topics_digest=given.topics_digest,
        target={member_id: tuple(sorted(partitions)) for member_id, partitions in target.items()},
    )
