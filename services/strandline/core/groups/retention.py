"""When committed offsets, groups, and fences of producers are deleted because nobody needs them any more (G29, X16)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from strandline.core.coordinator.records import Batch, Record
from strandline.core.groups.changes import Changes
from strandline.core.groups.deletion import delete_offsets_of, delete_rows
from strandline.core.groups.group import Group
from strandline.core.groups.records import ProducerFenceKey
from strandline.core.groups.staging_producers import StagingProducers
from strandline.core.types import TopicPartition


def expire(changes: Changes, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> None:
    """Delete the offsets whose time is over, and the group itself if nothing is left of it."""
    group = changes.group
    expired = list(_expired(group, subscribed, unix_ms, retention_ms))
    for tp in expired:
        changes.delete_offset(tp)
    n_offsets = sum(len(of_topic) for of_topic in group.offsets.values())
    if not group.members and not group.current and not group.staged and n_offsets == len(expired):
        delete_rows(changes)


def _expired(group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    since_ms = group.value.empty_since_ms if group.value else None
    if not group.members and since_ms is not None and unix_ms - since_ms < retention_ms:
        return
    for tp, row in group.offset_rows():
        if tp in group.staged:
            # Its transaction decides what follows; without the row an abort would leave the group nowhere.
            continue
        if tp.topic_id not in subscribed and unix_ms - row.commit_ms >= retention_ms:
            yield tp


def drop_topics(changes: Changes, topic_ids: Collection[str]) -> None:
    """Delete the offsets of topics that are deleted."""
    group = changes.group
    for topic_id in topic_ids:
        staged = {tp.partition for tp in group.staged if tp.topic_id == topic_id}
        for partition in sorted(group.offsets.get(topic_id, {}).keys() | staged):
            delete_offsets_of(changes, TopicPartition(topic_id, partition))


def stale_fences(producers: StagingProducers, unix_ms: int, retention_ms: int) -> Batch:
    """The deletions of fences that nobody has used for so long (X16): no request of such a producer can still come."""
    return tuple(
        Record(ProducerFenceKey(producer_id))
        for producer_id, fence in producers.fences.items()
        if unix_ms - fence.update_ms >= retention_ms and producer_id not in producers.staged
    )
