"""Asks the cluster, before anything is read, for its topics and the extent of each partition.

Invariant: an extent ends at the last stable offset that the partition's leader reports to clients, so no record is
planned that is not committed, or that an open transaction may abort.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from strandline.client import EARLIEST, LATEST, Admin, ErrorCode, FoundOffset, Refused, TopicPartition
from strandline.client.blocking import loop_thread
from strandline_analytics.topic import where
from strandline_analytics.topic.connection import Connection, borrowed
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.ranges import Extent
from strandline_analytics.topic.selection import Selection, chosen
from strandline_analytics.topic.where import Offsets, Settled, Times, Where, check_partitions


@dataclass(frozen=True, slots=True)
class FoundPartitions:
    """The selected partitions in their present state."""

    topic_ids: Mapping[str, str]
    """Topic ids by topic name."""
    partitions: Mapping[TopicPartition, Extent]


def ask(connection: Connection, selection: Selection) -> FoundPartitions:
    """The partitions that can be read now, with their extents.

    Raises:
        TopicFailed: no node answers, or a named topic or partition does not exist.
        Refused: a partition has no leader for as long as the client waits.
    """
    with _admin(connection) as admin:
        return loop_thread().run(_ask, admin, selection)


def settle(connection: Connection, where_: Where, found: FoundPartitions) -> Settled:
    """Resolve times to offsets by asking leaders.

    Raises:
        TopicFailed: times are not given for exactly the partitions, or no record is that late.
        Refused: a partition has no leader for as long as the client waits.
    """
    if not isinstance(where_, Times):
        return where_
    if isinstance(where_.at_ms, int):
        at_ms: Mapping[TopicPartition, int] = dict.fromkeys(found.partitions, where_.at_ms)
    else:
        check_partitions(where_.option, where_.at_ms, found.partitions)
        at_ms = where_.at_ms
    with _admin(connection) as admin:
        return loop_thread().run(_at, admin, where_, at_ms, found)


def _admin(connection: Connection) -> AbstractContextManager[Admin]:
    return borrowed(connection, "admin", lambda: Admin(connection.bootstrap, **connection.tls))


async def _ask(admin: Admin, selection: Selection) -> FoundPartitions:
    topics = {topic.name: topic for topic in (await admin.metadata()).topics}
    wanted = chosen(selection, {name: len(topic.partitions) for name, topic in topics.items()})
    # Ends first: records written meanwhile belong to the next read, and a start is never beyond its end.
    ends = await _list(admin, dict.fromkeys(wanted, LATEST))
    starts = await _list(admin, dict.fromkeys(wanted, EARLIEST))
    extents = {tp: Extent(starts[tp].offset or 0, ends[tp].offset or 0) for tp in wanted}
    return FoundPartitions({tp.topic: topics[tp.topic].topic_id for tp in wanted}, extents)


async def _at(admin: Admin, times: Times, at_ms: Mapping[TopicPartition, int], found: FoundPartitions) -> Offsets:
    answers = await _list(admin, at_ms)
    offsets = {}
    for tp, answer in answers.items():
        if answer.offset is None and not times.or_latest:
            raise TopicFailed(
                times.option,
                f"partition {tp.topic}-{tp.partition} has no record at or after {at_ms[tp]} ms",
                "give an earlier time, or set startingOffsetsByTimestampStrategy to latest",
            )
        # Records that arrived after the extent was requested belong to the next read.
        offsets[tp] = where.LATEST if answer.offset is None else min(answer.offset, found.partitions[tp].end)
    return offsets


async def _list(admin: Admin, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
    """One request for all partitions of a topic with the same time."""
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for tp, time in times.items():
        alike[tp.topic, time].append(tp.partition)
    answers = await asyncio.gather(*(_list_one(admin, *of, partitions) for of, partitions in alike.items()))
    return {tp: offset for answer in answers for tp, offset in answer}


async def _list_one(
    admin: Admin, topic: str, time: int, partitions: Iterable[int]
) -> Iterable[tuple[TopicPartition, FoundOffset]]:
    try:
        answer = await admin.list_offsets(topic, partitions, timestamp_ms=time, isolation="read_committed")
    except Refused as refused:
        if refused.refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise TopicFailed(
            "subscribe", f"topic {topic!r} was deleted meanwhile: {refused}", "start the query again"
        ) from refused
    return [(TopicPartition(topic, partition), offset) for partition, offset in answer.items()]


# ---- checkpoint
# The form of a stream's position in its checkpoint: ``{"tides": {"topic_id": …, "offsets": {"0": 23}}}``.
#
# Invariant: a position names the id of each topic, so a topic that was deleted and created again under the same name
# is noticed, not continued in the middle.


Position = dict[str, Any]
"""A position as Spark keeps it; its values can be written as JSON."""


def written(found: FoundPartitions, offsets: Offsets) -> Position:
    """The position with the next offset of each partition."""
    by_topic: Position = {}
    for (topic, partition), offset in sorted(offsets.items()):
        own = by_topic.setdefault(topic, {"topic_id": found.topic_ids[topic], "offsets": {}})
        own["offsets"][str(partition)] = offset
    return by_topic


def read(position: Mapping[str, Any], found: FoundPartitions, *, fail_on_data_loss: bool) -> dict[TopicPartition, int]:
    """The offsets of a position.

    Raises:
        TopicFailed: one of its topics was deleted, whether or not another one has its name.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, own in position.items():
        if not isinstance(own, dict):
            raise TopicFailed("subscribe", "the checkpoint is of another source", "begin with a new checkpointLocation")
        topic_id = found.topic_ids.get(topic)
        if topic_id is None and not fail_on_data_loss:
            continue
        if topic_id is None:
            raise TopicFailed(
                "failOnDataLoss",
                f"topic {topic!r} of the checkpoint is not read any more: it was deleted, or is not selected",
                "set it to false to go on without it, or begin with a new checkpointLocation",
            )
        if own["topic_id"] != topic_id:
            raise TopicFailed(
                "subscribe",
                f"the checkpoint is of the topic {topic!r} with id {own['topic_id']}, the topic of this name is "
                f"{topic_id}",
                "it was deleted and created again: begin with a new checkpointLocation",
            )
        offsets |= {TopicPartition(topic, int(partition)): int(at) for partition, at in own["offsets"].items()}
    return offsets
