"""Decides what one subscriber to the metadata is sent: which topics it wants, and what of a change concerns them.

Invariant: a subscriber is sent a topic whole before it is sent changes of it, and every change of the topics that it
wants after that; nothing about any other topic (C61). A subscription by name means the topic that has the name at
each position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import AsOf, MetadataImage, NodeImage, PartitionImage, TopicImage, Wanted
from strandline.core.permissions import EVERYTHING, Acls, Permit, ResourceType
from strandline.core.types import NodeId, Rules

# ---- metadata_history
# Decides what changed between two states of the metadata, and how many changes are kept for subscribers.
#
# Invariant: the state after a change is the state before it with exactly what the change holds; a subscriber that has a
# position within the kept changes, and is sent every later one, has the state (C61).

CHANGES_KEPT = 1_024
PARTITIONS_KEPT = 50_000
"""Limit on the partitions in all kept changes together; the newest change is always kept."""


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """What changed in one topic. ``whole`` is set if more than partitions changed, ``deleted`` if it was deleted."""

    name: str
    topic_id: str
    whole: TopicImage | None = None
    partitions: tuple[PartitionImage, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """The change from one position to the next; ``rules`` and ``feature_level`` are None if they did not change."""

    number: int
    """Index of this change in the history, from 0."""
    as_of: AsOf
    topics: Mapping[str, ChangedTopic]
    """By topic id."""
    nodes: tuple[NodeImage, ...] = ()
    removed_node_ids: tuple[NodeId, ...] = ()
    rules: Rules | None = None
    feature_level: int | None = None
    ids_by_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids in ``topics`` by name: two if a topic was deleted and another one created with the same name."""

    @property
    def is_for_all(self) -> bool:
        """Whether it has something for every subscriber, regardless of topics."""
        return bool(self.nodes or self.removed_node_ids or self.rules) or self.feature_level is not None

    @property
    def partition_count(self) -> int:
        """How many partitions the change holds."""
        return sum(len(t.partitions) + (len(t.whole.partitions) if t.whole else 0) for t in self.topics.values())


class MetadataHistory:
    """The newest state, in the forms that subscriptions look up, and the changes that led to it."""

    def __init__(self, *, changes_kept: int = CHANGES_KEPT, partitions_kept: int = PARTITIONS_KEPT) -> None:
        self.image: MetadataImage | None = None
        """The newest image, used for what belongs to no topic or node; None before the first."""
        self.topics: dict[str, TopicImage] = {}
        self.ids: dict[str, str] = {}
        """Topic ids by name."""
        self.nodes: dict[NodeId, NodeImage] = {}
        self.removed_node_ids: set[NodeId] = set()
        self.acls = Acls()
        """Access rules; none before the first snapshot."""
        self.acls_changed = -1
        """Number of the last change of rules; before it, subscribers may have been allowed other topics."""
        self.as_of = AsOf(-1, -1)
        self._changes: deque[StateChange] = deque()
        self._base = self.as_of
        self._changes_kept = changes_kept
        self._partitions_kept = partitions_kept
        self._partitions = 0
        self.next_number = 0
        """The number that the next change will have."""

    @property
    def first_number(self) -> int:
        """The number of the oldest kept change, or of the next one if none is kept."""
        return self.next_number - len(self._changes)

    def change(self, number: int) -> StateChange:
        """A kept change, by its number."""
        return self._changes[number - self.first_number]

    def number_after(self, position: AsOf) -> int | None:
        """The first change after ``position``; None if it needs a snapshot.

        A position ahead of ours in the same reign gets what comes next: until then there is nothing new for it.
        """
        if self.image is None:
            return None
        number = self.next_number
        for change in reversed(self._changes):
            if change.as_of.metadata_offset <= position.metadata_offset:
                return number if change.as_of.is_same_reign(position) else None
            number -= 1
        is_at_base = self._base.metadata_offset <= position.metadata_offset and self._base.is_same_reign(position)
        return number if is_at_base else None

    def take(self, images: Iterable[MetadataImage]) -> StateChange | None:
        """Add a state, or changes of it, in order, as one change; returns None if nothing in it is new."""
        known, known_as_of, rules = self.image, self.as_of, self.acls.rules
        topics: dict[str, TopicImage | None] = {}
        nodes: dict[NodeId, NodeImage | None] = {}
        for image in images:
            if _position(image).is_before(self.as_of) or (self.image is None and not image.is_snapshot):
                continue
            for topic_id in self._touched_topics(image):
                # As it was before all of these images: what changed back in between is no change (C67).
                topics.setdefault(topic_id, self.topics.get(topic_id))
            for node_id in self._touched_nodes(image):
                nodes.setdefault(node_id, self.nodes.get(node_id))
            self._apply(image)
        if self.image is None or self.image is known:
            return None
        if known is None:
            self._base = self.as_of
            return None
        change = self._change(known, topics, nodes)
        other_rules = self.acls.rules != rules
        is_empty = not (change.topics or change.nodes or change.removed_node_ids or change.rules or other_rules)
        if is_empty and self.as_of == known_as_of:
            # The state whole once more, as a watch that is opened again brings it.
            return None
        if other_rules:
            self.acls_changed = change.number
        return self._keep(change)

    def _change(
        self, known: MetadataImage, topics: Mapping[str, TopicImage | None], nodes: Mapping[NodeId, NodeImage | None]
    ) -> StateChange:
        """The change from these topics and nodes, as they were before, to what they are now."""
        assert self.image is not None
        now = self.image
        changed = {t.topic_id: t for topic_id, old in topics.items() if (t := self._compare(topic_id, old)) is not None}
        return StateChange(
            number=self.next_number,
            as_of=self.as_of,
            topics=changed,
            nodes=tuple(self.nodes[n] for n, old in nodes.items() if n in self.nodes and self.nodes[n] != old),
            removed_node_ids=tuple(n for n in nodes if n not in self.nodes),
            rules=now.rules if now.rules != known.rules else None,
            feature_level=now.feature_level if now.feature_level != known.feature_level else None,
            ids_by_name=_ids_by_name(changed.values()),
        )

    def _touched_topics(self, image: MetadataImage) -> Iterable[str]:
        if image.is_snapshot:
            yield from self.topics
        yield from image.deleted_topic_ids
        for topic in image.topics:
            yield topic.topic_id

    def _touched_nodes(self, image: MetadataImage) -> Iterable[NodeId]:
        if image.is_snapshot:
            yield from self.nodes
        yield from image.removed_node_ids
        for node in image.nodes:
            yield node.node_id

    def _apply(self, image: MetadataImage) -> None:
        if image.is_snapshot:
            self.topics, self.nodes, self.removed_node_ids = {}, {}, set()
        for topic_id in image.deleted_topic_ids:
            self.topics.pop(topic_id, None)
        self.topics.update((topic.topic_id, topic) for topic in image.topics)
        for node_id in image.removed_node_ids:
            self.nodes.pop(node_id, None)
        self.nodes.update((node.node_id, node) for node in image.nodes)
        self.removed_node_ids = (self.removed_node_ids | set(image.removed_node_ids)) - self.nodes.keys()
        if image.is_snapshot or image.topics or image.deleted_topic_ids:
            self.ids = {topic.name: topic.topic_id for topic in self.topics.values()}
        if (image.is_snapshot or image.acls is not None) and (image.acls or ()) != self.acls.rules:
            # Rules that a snapshot repeats stay compiled.
            self.acls = Acls(image.acls or ())
        self.image = image
        self.as_of = _position(image)

    def _compare(self, topic_id: str, old: TopicImage | None) -> ChangedTopic | None:
        new = self.topics.get(topic_id)
        if new is None:
            return ChangedTopic(old.name, topic_id, deleted=True) if old is not None else None
        if new is old or new == old:
            return None
        is_whole = old is None or (new.name, new.configs) != (old.name, old.configs)
        if old is None or is_whole or len(new.partitions) != len(old.partitions):
            return ChangedTopic(new.name, topic_id, whole=new)
        changed = tuple(a for a, b in zip(new.partitions, old.partitions, strict=True) if a != b)
        return ChangedTopic(new.name, topic_id, partitions=changed)

    def _keep(self, change: StateChange) -> StateChange:
        self._changes.append(change)
        self.next_number += 1
        self._partitions += change.partition_count
        while len(self._changes) > 1 and (
            len(self._changes) > self._changes_kept or self._partitions > self._partitions_kept
        ):
            gone = self._changes.popleft()
            self._base = gone.as_of
            self._partitions -= gone.partition_count
        return change


def _position(image: MetadataImage) -> AsOf:
    reign = image.reign
    return AsOf(image.controller_epoch, image.metadata_offset, reign.reign_id if reign else "")


def _ids_by_name(topics: Iterable[ChangedTopic]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for topic in topics:
        found[topic.name] = (*found.get(topic.name, ()), topic.topic_id)
    return found


MOST_TOPICS = 10_000
"""Names and ids in one subscription; a client that wants more asks for all topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The content of one message to a subscriber, except nodes and settings, which are the same for all."""

    topics: tuple[TopicImage, ...] = ()
    changed: tuple[ChangedTopic, ...] = ()
    deleted_topic_ids: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has none of the subscriber's topics."""
        return not (self.topics or self.changed or self.deleted_topic_ids or self.missing)


class Subscription:
    """The topics that one subscriber wants, over a history."""

    def __init__(self, history: MetadataHistory, permit: Callable[[], Permit] = lambda: EVERYTHING) -> None:
        """``permit`` returns what the subscriber may access now."""
        self._history = history
        self._permit = permit
        self._names: set[str] = set()
        self._ids: set[str] = set()
        self._all = False

    @property
    def snapshot_after(self) -> int:
        """The number of the change of rules after which this subscriber needs a new snapshot; -1 if none."""
        return -1 if self._permit().caller.needs is None else self._history.acls_changed

    def _sees(self, name: str) -> bool:
        return self._permit().sees(ResourceType.TOPIC, name)

    def want(self, wanted: Wanted) -> Refusal | None:
        """Change the wanted topics; returns the refusal if there is one."""
        for name, topic_id in (*wanted.add, *wanted.remove):
            if bool(name) == bool(topic_id):
                return Refusal(
                    ErrorCode.INVALID_REQUEST, "a topic in add_topics or remove_topics needs a name or an id, not both"
                )
        self._all = self._all or wanted.all_topics
        for name, topic_id in wanted.add:
            (self._names if name else self._ids).add(name or topic_id)
        for name, topic_id in wanted.remove:
            (self._names if name else self._ids).discard(name or topic_id)
        if len(self._names) + len(self._ids) > MOST_TOPICS:
            return Refusal(ErrorCode.INVALID_REQUEST, f"add_topics: more than {MOST_TOPICS} topics; set all_topics")
        return None

    def snapshot(self) -> Portion:
        """All wanted topics as they are now."""
        return self.added([*((name, "") for name in self._names), *(("", topic_id) for topic_id in self._ids)])

    def added(self, refs: Iterable[tuple[str, str]]) -> Portion:
        """Topics just added, given as (name, id), whole; topics that do not exist are missing."""
        # By id, because a topic may be wanted by its name and by its id.
        every = self._history.topics.values() if self._all else ()
        found: dict[str, TopicImage] = {topic.topic_id: topic for topic in every if self._sees(topic.name)}
        missing = []
        for name, topic_id in refs:
            topic = self._history.topics.get(topic_id or self._history.ids.get(name, ""))
            if topic is None or not self._sees(topic.name):
                missing.append((name, topic_id))
            else:
                found[topic.topic_id] = topic
        return Portion(topics=tuple(found.values()), missing=tuple(missing))

    def of(self, change: StateChange) -> Portion:
        """The part of a change that is wanted."""
        wanted = (change.topics[topic_id] for topic_id in self._wanted_ids(change))
        topics = [topic for topic in wanted if self._sees(topic.name)]
        return Portion(
            topics=tuple(topic.whole for topic in topics if topic.whole is not None),
            changed=tuple(topic for topic in topics if topic.partitions),
            deleted_topic_ids=tuple(topic.topic_id for topic in topics if topic.deleted),
        )

    def _wanted_ids(self, change: StateChange) -> Iterable[str]:
        if self._all or not change.topics:
            return change.topics
        by_name = (topic_id for name in self._names for topic_id in change.ids_by_name.get(name, ()))
        return dict.fromkeys([*by_name, *(topic_id for topic_id in self._ids if topic_id in change.topics)])
