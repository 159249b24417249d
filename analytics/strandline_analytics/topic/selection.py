"""Which topics and partitions a reader is about: named, matched by a pattern, or assigned one by one.

Kafka's Spark source has the same three (``subscribe``, ``subscribePattern``, ``assign``). Patterns match whole names
and are RE2 (ADR 25).

Invariant: what is named and does not exist is an error; what a pattern matches may be nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import re2

from strandline.client import EARLIEST, LATEST, Admin, ErrorCode, FoundOffset, Refused, TopicPartition
from strandline.client.blocking import loop_thread
from strandline_analytics.topic import ranges
from strandline_analytics.topic.options import Connection, Given, TopicFailed
from strandline_analytics.topic.ranges import Extent, Offsets, Settled, Times, Where, check_partitions
from strandline_analytics.topic.reading import borrowed

OPTIONS = ("subscribe", "subscribePattern", "assign", "topic")
"""``topic`` is ``subscribe`` for one topic."""
_ONE = "name the topics with subscribe, subscribePattern or assign, one of the three"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a reader reads; exactly one of the three is set."""

    option: str
    """Which option selected it, for messages."""
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics that are named; None: any that the pattern matches."""
        if self.assigned is not None:
            return tuple(sorted(self.assigned))
        return None if self.pattern is not None else self.names


def read_selection(given: Given) -> Selection:
    """The selection that options make.

    Raises:
        TopicFailed: none or more than one is given, or it cannot be read.
    """
    options = [name for name in OPTIONS if given.text(name)]
    if not options:
        raise TopicFailed("subscribe", "it is missing", _ONE)
    if len(options) > 1:
        raise TopicFailed(options[1], f"{options[0]} is given as well", _ONE)
    (option,) = options
    text = given.text(option)
    if option == "assign":
        return Selection(option=option, assigned=_assigned(given, text))
    if option == "subscribePattern":
        _compiled(text)
        return Selection(option=option, pattern=text)
    names = [text] if option == "topic" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise given.wrong(option, f"it is {text!r}", "give names with commas between them")
    return Selection(option=option, names=tuple(dict.fromkeys(names)))


def chosen(selection: Selection, counts: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions that are read, in order.

    Args:
        selection: of `read_selection`.
        counts: how many partitions each topic of the cluster has.

    Raises:
        TopicFailed: a topic or partition that is named does not exist.
    """
    if selection.pattern is not None:
        matches = _compiled(selection.pattern)
        wanted = {name: tuple(range(count)) for name, count in counts.items() if matches.fullmatch(name) is not None}
    else:
        for name in selection.topics or ():
            if name not in counts:
                there = ", ".join(sorted(counts)) or "none"
                raise TopicFailed(
                    selection.option,
                    f"no topic is named {name!r}",
                    f"the cluster has: {there}; or create it first",
                )
        wanted = dict(selection.assigned or {name: tuple(range(counts[name])) for name in selection.names})
    for name, partitions in wanted.items():
        if partitions and not partitions[-1] < counts[name]:
            raise TopicFailed(
                selection.option,
                f"it names partition {partitions[-1]} of {name!r}",
                f"the topic has partitions 0 to {counts[name] - 1}",
            )
    return [TopicPartition(name, partition) for name in sorted(wanted) for partition in wanted[name]]


def _assigned(given: Given, text: str) -> dict[str, tuple[int, ...]]:
    try:
        by_topic = {str(name): tuple(sorted(set(partitions))) for name, partitions in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        by_topic = {}
    flat = [partition for partitions in by_topic.values() for partition in partitions]
    if not flat or not all(type(partition) is int and partition >= 0 for partition in flat):
        raise given.wrong("assign", f"it is {text!r}", 'give partitions by topic: {"tides": [0, 1]}')
    return by_topic


def _compiled(pattern: str) -> re2.Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "malformed"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise TopicFailed("subscribePattern", f"{pattern!r}: {words}", "patterns have RE2's syntax") from None


# ---- cluster
# What is asked of the cluster before anything is read: which topics there are, and the extent of each partition.
#
# Invariant: an extent ends at the last stable offset that the partition's leader reports to clients, so nothing is
# planned that is not committed, or that an open transaction may take back.


@dataclass(frozen=True, slots=True)
class Found:
    """The selected partitions as they are now."""

    topic_ids: Mapping[str, str]
    """By name."""
    partitions: Mapping[TopicPartition, Extent]


def ask(connection: Connection, selection: Selection) -> Found:
    """What there is to be read now.

    Raises:
        TopicFailed: no node answers, or what is named does not exist.
        Refused: a partition has no leader for as long as the client waits.
    """
    with _admin(connection) as admin:
        return loop_thread().run(_ask, admin, selection)


def settle(connection: Connection, where_: Where, found: Found) -> Settled:
    """The same place without times, which leaders are asked for.

    Raises:
        TopicFailed: times are not given for exactly the partitions, or nothing is as late.
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


async def _ask(admin: Admin, selection: Selection) -> Found:
    topics = {topic.name: topic for topic in (await admin.metadata()).topics}
    wanted = chosen(selection, {name: len(topic.partitions) for name, topic in topics.items()})
    # Ends first: what is written meanwhile belongs to the next read, and a start never lies behind its end.
    ends = await _list(admin, dict.fromkeys(wanted, LATEST))
    starts = await _list(admin, dict.fromkeys(wanted, EARLIEST))
    extents = {tp: Extent(starts[tp].offset or 0, ends[tp].offset or 0) for tp in wanted}
    return Found({tp.topic: topics[tp.topic].topic_id for tp in wanted}, extents)


async def _at(admin: Admin, times: Times, at_ms: Mapping[TopicPartition, int], found: Found) -> Offsets:
    answers = await _list(admin, at_ms)
    offsets = {}
    for tp, answer in answers.items():
        if answer.offset is None and not times.or_latest:
            raise TopicFailed(
                times.option,
                f"partition {tp.topic}-{tp.partition} has no record at or after {at_ms[tp]} ms",
                "give an earlier time, or set startingOffsetsByTimestampStrategy to latest",
            )
        # Records that came after the extent was asked for belong to the next read.
        offsets[tp] = ranges.LATEST if answer.offset is None else min(answer.offset, found.partitions[tp].end)
    return offsets


async def _list(admin: Admin, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
    """One question for the partitions of a topic that are asked for one time."""
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
