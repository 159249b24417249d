"""When committed offsets, and groups, are deleted because nobody needs them any more (G29)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from strandline.core.groups.changes import Changes
from strandline.core.groups.deletion import delete_rows
from strandline.core.groups.group import Group
from strandline.core.types import TopicPartition


def expire(changes: Changes, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> None:
    """Delete the offsets whose time is over, and the group itself if nothing is left of it."""
    group = changes.group
    expired = list(_expired(group, subscribed, unix_ms, retention_ms))
    for tp in expired:
        changes.delete_offset(tp)
    n_offsets = sum(len(of_topic) for of_topic in group.offsets.values())
    if not group.members and not group.current and n_offsets == len(expired):
        delete_rows(changes)


def _expired(group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    since_ms = group.value.empty_since_ms if group.value else None
    if not group.members and since_ms is not None and unix_ms - since_ms < retention_ms:
        return
    for tp, row in group.offset_rows():
        if tp.topic_id not in subscribed and unix_ms - row.commit_ms >= retention_ms:
            yield tp


def drop_topics(changes: Changes, topic_ids: Collection[str]) -> None:
    """Delete the offsets of topics that are deleted."""
    for topic_id in topic_ids:
        for partition in changes.group.offsets.get(topic_id, {}):
            changes.delete_offset(TopicPartition(topic_id, partition))
