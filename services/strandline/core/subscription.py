"""Decides what one subscriber to the metadata is sent: which topics it wants, and what of a change concerns them.

Invariant: a subscriber is sent a topic whole before it is sent changes of it, and every change of the topics that it
wants behind that; nothing of any other topic (C61). A topic that is wanted by its name is the one of that name at each
position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import TopicImage, Wanted
from strandline.core.metadata_history import ChangedTopic, MetadataHistory, StateChange

MOST_TOPICS = 10_000
"""Names and ids in one subscription; a client that wants more asks for all topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one message to a subscriber holds, apart from nodes and settings, which are the same for all."""

    topics: tuple[TopicImage, ...] = ()
    changed: tuple[ChangedTopic, ...] = ()
    deleted_topic_ids: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the subscriber's topics is in it."""
        return not (self.topics or self.changed or self.deleted_topic_ids or self.missing)


class Subscription:
    """The topics that one subscriber wants, over a history."""

    def __init__(self, history: MetadataHistory) -> None:
        self._history = history
        self._names: set[str] = set()
        self._ids: set[str] = set()
        self._all = False

    def want(self, wanted: Wanted) -> Refusal | None:
        """Change what is wanted; returns why that is refused, if it is."""
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
        """Everything that is wanted, as it is now."""
        return self.added([*((name, "") for name in self._names), *(("", topic_id) for topic_id in self._ids)])

    def added(self, refs: Iterable[tuple[str, str]]) -> Portion:
        """Topics as (name, id) that were just added, whole; what is not there is missing."""
        # By id, because a topic may be wanted by its name and by its id.
        found: dict[str, TopicImage] = dict(self._history.topics) if self._all else {}
        missing = []
        for name, topic_id in refs:
            topic = self._history.topics.get(topic_id or self._history.ids.get(name, ""))
            if topic is None:
                missing.append((name, topic_id))
            else:
                found[topic.topic_id] = topic
        return Portion(topics=tuple(found.values()), missing=tuple(missing))

    def of(self, change: StateChange) -> Portion:
        """What of a change is wanted."""
        topics = [change.topics[topic_id] for topic_id in self._wanted_ids(change)]
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
