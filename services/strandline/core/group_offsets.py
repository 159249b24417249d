"""Decides what offsets groups without members commit, and what is known of them: the machine of `__group_state`.

A group whose consumers are assigned their partitions by hand, and every tool that sets offsets, commits without a
member (G27). Invariants: an offset belongs to a topic's id, so a topic that is created anew under an old name has none
(G26); of two commits of a group the later one has the higher order, also after a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from strandline.core.coordinator.machine import Context, Decision, TopicDirectory
from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.group_messages import (
    CommittedPartition,
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
)
from strandline.core.types import LeaderEpoch, Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """One partition of one group."""

    group_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """What is committed for it."""

    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_ms: int
    """In ms since the Unix epoch."""
    order: int
    """Number of the commit within its group; the offsets of one commit share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRules:
    """Bounds and times of committed offsets; the defaults are Kafka's."""

    max_metadata_bytes: int = 4_096
    retention_ms: int = 7 * 86_400_000
    """An offset of a group without members that was committed so long ago goes."""
    check_interval_ms: int = 600_000
    """How often offsets are looked at for their age."""


@dataclass(slots=True)
class _Group:
    offsets: dict[TopicPartition, OffsetValue] = field(default_factory=dict)
    last_order: int = 0


class GroupOffsets:
    """The machine of one partition of `__group_state` (`core.coordinator.machine.Machine`)."""

    def __init__(self, rules: OffsetRules | None = None) -> None:
        self._rules = rules or OffsetRules()
        self._groups: dict[str, _Group] = {}
        self._next_check_ms = 0
        # Version of the topics that offsets were last compared with.
        self._topics_seen = -1

    def rows(self) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Everything that is committed."""
        for group_id, group in self._groups.items():
            for tp, value in group.offsets.items():
                yield OffsetKey(group_id, *tp), value

    def apply(self, record: Record) -> None:
        """Take one record into the state."""
        key, value = record
        assert isinstance(key, OffsetKey), f"{key!r} is no record of groups"
        tp = TopicPartition(key.topic_id, key.partition)
        if value is None:
            group = self._groups.get(key.group_id)
            if group is not None:
                group.offsets.pop(tp, None)
                if not group.offsets:
                    del self._groups[key.group_id]
            return
        assert isinstance(value, OffsetValue), f"{value!r} is no committed offset"
        group = self._groups.setdefault(key.group_id, _Group())
        group.offsets[tp] = value
        group.last_order = max(group.last_order, value.order)

    def decide(self, request: object, context: Context) -> Decision:
        """What a request leads to."""
        if isinstance(request, OffsetCommit):
            return self._commit(request, context)
        assert isinstance(request, OffsetFetch), f"{request!r} is no request to a group"
        return self._fetch(request)

    def _commit(self, request: OffsetCommit, context: Context) -> Decision:
        scope = request.group_id
        refusal = _wrong_epoch(request, context) or _unknown_member(request.member_id, request.member_epoch)
        if refusal is not None:
            return Decision(answer=refusal, scope=scope)
        group = self._groups.get(scope)
        order = group.last_order + 1 if group is not None else 1
        results: list[CommittedPartition] = []
        records: list[Record] = []
        for each in request.offsets:
            refusal = self._check(each, context.topics)
            results.append(CommittedPartition(each.tp, refusal))
            if refusal is None:
                value = OffsetValue(each.offset, each.leader_epoch, each.metadata, context.unix_ms, order)
                records.append(Record(OffsetKey(scope, *each.tp), value))
        batches = (tuple(records),) if records else ()
        return Decision(batches=batches, answer=OffsetsCommitted(partitions=tuple(results)), scope=scope)

    def _check(self, asked: OffsetToCommit, topics: TopicDirectory) -> Refusal | None:
        topic = topics.by_id(asked.tp.topic_id)
        if topic is None:
            return _definite(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {asked.tp.topic_id!r}; refresh metadata")
        if not 0 <= asked.tp.partition < topic.partition_count:
            message = f"topic '{topic.name}' has no partition {asked.tp.partition}; it has {topic.partition_count}"
            return _definite(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        if asked.offset < 0:
            message = f"committed_offset is {asked.offset}; it must be 0 or more, the next offset to read"
            return _definite(ErrorCode.INVALID_REQUEST, message)
        size, limit = len(asked.metadata.encode()), self._rules.max_metadata_bytes
        if size > limit:
            message = f"committed_metadata has {size} bytes, more than {limit}; commit a shorter text"
            return _definite(ErrorCode.OFFSET_METADATA_TOO_LARGE, message)
        return None

    def _fetch(self, request: OffsetFetch) -> Decision:
        refusal = _unknown_member(request.member_id or "", request.member_epoch)
        if refusal is not None:
            return Decision(answer=refusal, scope=request.group_id)
        group = self._groups.get(request.group_id)
        known = group.offsets if group is not None else {}
        wanted = known.keys() if request.partitions is None else request.partitions
        found = tuple(_fetched(tp, known.get(tp)) for tp in wanted)
        answer = OffsetsFetched(partitions=found)
        return Decision(answer=answer, scope=request.group_id, barrier=request.require_stable)

    def tick(self, context: Context) -> Sequence[Decision]:
        """Delete offsets that are too old, and at once those of topics that are gone."""
        is_due = context.now_ms >= self._next_check_ms
        if not is_due and context.topics.version == self._topics_seen:
            return ()
        self._topics_seen = context.topics.version
        if is_due:
            self._next_check_ms = context.now_ms + self._rules.check_interval_ms
        oldest_ms = context.unix_ms - self._rules.retention_ms
        found = []
        for group_id, group in self._groups.items():
            gone = tuple(
                Record(OffsetKey(group_id, *tp))
                for tp, value in group.offsets.items()
                if (is_due and value.commit_ms <= oldest_ms) or context.topics.by_id(tp.topic_id) is None
            )
            if gone:
                found.append(Decision(batches=(gone,), scope=group_id))
        return found

    def computed(self, result: object, context: Context) -> Decision:
        """Never: nothing here takes long."""
        raise AssertionError("offsets need no worker")

    def taken(self, note: object, now_ms: int) -> None:
        """Nothing is kept outside of the log."""

    def answered(self, note: object, now_ms: int) -> None:
        """Nothing depends on it."""

    def excuse(self, context: Context) -> None:
        """Nobody is late: there are no members."""


def _wrong_epoch(request: OffsetCommit, context: Context) -> Refusal | None:
    if request.coordinator_epoch in (None, context.coordinator_epoch):
        return None
    return _definite(
        ErrorCode.NOT_COORDINATOR,
        f"coordinator_epoch {request.coordinator_epoch} is not {context.coordinator_epoch}; refresh metadata",
    )


def _unknown_member(member_id: str, member_epoch: int | None) -> Refusal | None:
    if not member_id and member_epoch is None:
        return None
    return _definite(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member '{member_id}'; it has no members")


def _definite(code: ErrorCode, message: str) -> Refusal:
    return Refusal(code, message, Outcome.NOT_APPENDED)


def _fetched(tp: TopicPartition, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(tp)
    return FetchedOffset(tp, value.offset, value.leader_epoch, value.metadata, value.commit_ms)
