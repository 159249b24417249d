"""Which member of a group gets which partitions: the interface of an assignor, the uniform one and the range one.

The assignor ``uniform``: balance before stickiness before racks (G24).

With equal subscriptions sizes differ by at most one, then as few partitions move as that allows, and one that moves
goes to a member in a rack of one of its replicas if such a member has room. With unequal subscriptions partitions
with the fewest possible owners are placed first, and are moved on while that makes two members more equal.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.coordinator.machine import TopicEntry
from strandline.core.types import TopicPartition

# ---- subscribers
# A member as an assignor sees it.


class Subscriber(NamedTuple):
    """Sorts by what survives a restart: the instance id if there is one."""

    name: str
    """Instance id, else member id."""
    member_id: str
    rack_id: str | None
    topic_ids: frozenset[str]


Target = dict[str, set[TopicPartition]]
"""Member id to partitions; every subscriber has an entry."""


Previous = Mapping[str, Iterable[TopicPartition]]


def assign_uniform(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], previous: Previous) -> Target:
    """The target. Cost: partitions times racks with equal subscriptions, else partitions times members."""
    if not subscribers:
        return {}
    target = _kept(subscribers, topics, previous)
    if all(each.topic_ids == subscribers[0].topic_ids for each in subscribers):
        _Equal(subscribers, topics, target).assign()
    else:
        _Unequal(subscribers, topics, target).assign()
    return target


def _kept(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], previous: Previous) -> Target:
    """What each member may keep: existing partitions of subscribed topics that no earlier member kept."""
    target: Target = {}
    taken: set[TopicPartition] = set()
    for each in subscribers:
        mine = target[each.member_id] = set()
        for tp in previous.get(each.member_id, ()):
            topic = topics.get(tp.topic_id)
            if topic and tp.topic_id in each.topic_ids and tp.partition < topic.partition_count and tp not in taken:
                taken.add(tp)
                mine.add(tp)
    return target


def _partitions(topics: Iterable[TopicEntry]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic_id, p) for topic in topics for p in range(topic.partition_count)]


class _Equal:
    """All members subscribe to the same topics."""

    def __init__(self, subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], target: Target) -> None:
        ids = subscribers[0].topic_ids
        self._subscribers = subscribers
        self._topics = {topic_id: topics[topic_id] for topic_id in sorted(topics) if topic_id in ids}
        self._target = target

    def assign(self) -> None:
        partitions = _partitions(self._topics.values())
        least, extra = divmod(len(partitions), len(self._subscribers))
        # Members that hold more than the minimum now keep one more while such places last: that moves the fewest.
        keepers = [each for each in self._subscribers if len(self._target[each.member_id]) > least][:extra]
        larger = {each.member_id for each in keepers}
        larger.update([m.member_id for m in self._subscribers if m.member_id not in larger][: extra - len(keepers)])
        room: dict[str, int] = {}
        for each in self._subscribers:
            size = least + (each.member_id in larger)
            self._cut(each, size)
            room[each.member_id] = size - len(self._target[each.member_id])
        placed = set().union(*self._target.values())
        self._place([tp for tp in partitions if tp not in placed], room)

    def _cut(self, subscriber: Subscriber, size: int) -> None:
        mine = self._target[subscriber.member_id]
        if len(mine) > size:
            ranked = sorted(mine, key=lambda tp: (not self._is_near(tp, subscriber.rack_id), tp))
            mine.difference_update(ranked[size:])

    def _is_near(self, tp: TopicPartition, rack_id: str | None) -> bool:
        return rack_id is not None and rack_id in self._topics[tp.topic_id].racks[tp.partition]

    def _place(self, partitions: Sequence[TopicPartition], room: dict[str, int]) -> None:
        by_rack: dict[str, deque[str]] = {}
        for each in self._subscribers:
            if each.rack_id is not None and room[each.member_id]:
                by_rack.setdefault(each.rack_id, deque()).append(each.member_id)
        far = [tp for tp in partitions if not (by_rack and self._place_near(tp, by_rack, room))]
        turns = deque(each.member_id for each in self._subscribers if room[each.member_id])
        for tp in far:
            self._give(tp, turns, room)

    def _place_near(self, tp: TopicPartition, by_rack: dict[str, deque[str]], room: dict[str, int]) -> bool:
        racks = [rack for rack in sorted(self._topics[tp.topic_id].racks[tp.partition]) if by_rack.get(rack)]
        if not racks:
            return False
        # The rack with the most members that have room, so that others stay open for partitions with fewer choices.
        self._give(tp, by_rack[max(racks, key=lambda rack: len(by_rack[rack]))], room)
        return True

    def _give(self, tp: TopicPartition, turns: deque[str], room: dict[str, int]) -> None:
        member_id = turns.popleft()
        self._target[member_id].add(tp)
        room[member_id] -= 1
        if room[member_id]:
            turns.append(member_id)


class _Unequal:
    """Members subscribe to different topics."""

    def __init__(self, subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], target: Target) -> None:
        self._topics = topics
        self._target = target
        self._load = {each.member_id: len(target[each.member_id]) for each in subscribers}
        self._racks = {each.member_id: each.rack_id for each in subscribers}
        self._of_topic = {
            topic_id: [each.member_id for each in subscribers if topic_id in each.topic_ids]
            for topic_id in sorted(topics)
        }

    def assign(self) -> None:
        placed = set().union(*self._target.values())
        open_ones = [
            tp for tp in _partitions(self._topics.values()) if tp not in placed and self._of_topic[tp.topic_id]
        ]
        for tp in sorted(open_ones, key=lambda tp: (len(self._of_topic[tp.topic_id]), tp)):
            self._move(tp, None, self._lightest(tp))
        self._balance()

    def _lightest(self, tp: TopicPartition) -> str:
        racks = self._topics[tp.topic_id].racks[tp.partition]
        return min(self._of_topic[tp.topic_id], key=lambda m: (self._load[m], self._racks[m] not in racks))

    def _move(self, tp: TopicPartition, before: str | None, after: str) -> None:
        if before is not None:
            self._target[before].remove(tp)
            self._load[before] -= 1
        self._target[after].add(tp)
        self._load[after] += 1

    def _balance(self) -> None:
        # Each move makes the sum of the squared sizes smaller, so this ends; the bound keeps its cost known.
        budget = sum(self._load.values())
        moved = True
        while moved and budget > 0:
            moved = False
            for member_id in sorted(self._load, key=lambda m: (-self._load[m], m)):
                while budget > 0 and self._relieve(member_id):
                    moved = True
                    budget -= 1

    def _relieve(self, member_id: str) -> bool:
        """Move one partition of ``member_id`` to a member with at least two fewer; returns whether there was one."""
        for topic_id in sorted({tp.topic_id for tp in self._target[member_id]}):
            lightest = min(self._of_topic[topic_id], key=lambda m: self._load[m])
            if self._load[member_id] - self._load[lightest] >= 2:
                tp = max(tp for tp in self._target[member_id] if tp.topic_id == topic_id)
                self._move(tp, member_id, lightest)
                return True
        return False


# ---- range_assignor
# The assignor ``range``: of each topic, contiguous partitions in the order of the members (G24).
#
# Topics with equal subscribers and equal partition counts are co-partitioned: one member gets partition p of each.


def assign_range(
    subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], previous: Mapping[str, object]
) -> Target:
    """The target; ``previous`` plays no part, for contiguity comes first. Cost: members times topics."""
    target: Target = {each.member_id: set() for each in subscribers}
    for topic_id in sorted(topics):
        members = [each.member_id for each in subscribers if topic_id in each.topic_ids]
        if members:
            _spread(topics[topic_id], members, target)
    return target


def _spread(topic: TopicEntry, members: Sequence[str], target: Target) -> None:
    each, extra = divmod(topic.partition_count, len(members))
    begin = 0
    for index, member_id in enumerate(members):
        end = begin + each + (index < extra)
        target[member_id].update(TopicPartition(topic.topic_id, p) for p in range(begin, end))
        begin = end


# ---- assignment
# The input of an assignor, the available assignors, and which of them a group uses (G24).

DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: Mapping[str, Callable[..., Target]] = {"uniform": assign_uniform, "range": assign_range}
"""Each is pure and deterministic: (subscribers sorted, topics by id, previous target) to the new target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInput:
    """Everything that a target is computed from; immutable, so a worker may hold it."""

    group_id: str
    group_epoch: int
    assignor: str
    subscribers: tuple[Subscriber, ...]
    topics: Mapping[str, TopicEntry]
    previous: Mapping[str, tuple[TopicPartition, ...]]
    topics_digest: int

    @property
    def pairs(self) -> int:
        """Members times partitions, an upper bound of the cost of computing the target."""
        return len(self.subscribers) * sum(topic.partition_count for topic in self.topics.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedTarget:
    """A target and its input."""

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
