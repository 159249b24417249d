"""Decides which offset commits are accepted, and what is written for them (G20, G26, G27)."""

from __future__ import annotations

from collections.abc import Callable

from strandline.core.coordinator.machine import Context, Decision, Record, VerifyTransaction
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups import records as groups_records
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.heartbeat_rules import refusal_of_sender
from strandline.core.groups.heartbeats import late_copy, refusal_of_epoch
from strandline.core.groups.messages import (
    CommittedPartition,
    FetchedOffset,
    GroupSettings,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    TransactionMarked,
    TxnOffsetCommit,
)
from strandline.core.groups.timers import CommitTaken, Timers
from strandline.core.log.producers import MarkerVerdict, judge_marker, marker_refusal
from strandline.core.types import TopicPartition


def commit(group: Group, request: OffsetCommit, context: Context, timers: Timers, settings: GroupSettings) -> Decision:
    """Decide a commit; ``group`` is empty if no group has this name."""
    refusal = refusal_of_epoch(request.coordinator_epoch, context.coordinator_epoch)
    refusal = refusal or refusal_of_committer(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    # A late copy would take the group back behind a later commit of the same member.
    if timers.is_late_commit((request.group_id, request.member_id), request.sequence):
        return Decision(answer=late_copy(request.sequence), scope=request.group_id)
    order = group.top_order + 1
    records: list[Record] = []
    results: list[CommittedPartition] = []
    for each in request.offsets:
        # Each for itself: a partition that the member has just lost does not cost it the commits of the others.
        refused = refusal_of_offset(each, context, settings) or refusal_of_owner(group, request, each.tp)
        results.append(CommittedPartition(each.tp, refused))
        if refused is None:
            value = groups_records.OffsetValue(each.offset, each.leader_epoch, each.metadata, context.unix_ms, order)
            records.append(Record(groups_records.OffsetKey(request.group_id, *each.tp), value))
    is_member = request.member_epoch is not None
    return Decision(
        batches=(tuple(records),) if records else (),
        answer=OffsetsCommitted(partitions=tuple(results)),
        scope=request.group_id,
        taken=(CommitTaken(request.group_id, request.member_id, request.sequence),) if is_member else None,
    )


def refusal_of_committer(group: Group, request: OffsetCommit | TxnOffsetCommit) -> Refusal | None:
    """Why this sender may commit nothing for the group; None if its partitions are decided one by one."""
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        return Refusal(ErrorCode.INVALID_GROUP_ID, message, Outcome.NOT_APPENDED, field="group_id")
    if request.member_epoch is None:
        return _refusal_of_stranger(group)
    refusal = refusal_of_sender(group, request.member_id, request.instance_id)
    if refusal is not None and refusal.code is ErrorCode.FENCED_MEMBER_EPOCH:
        # Commits of a member that was removed are refused as those of a stranger; its heartbeat hears more.
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, refusal.message, Outcome.NOT_APPENDED)
    return refusal


def _refusal_of_stranger(group: Group) -> Refusal | None:
    # Members go on from positions of their own and would soon overwrite what anything else commits (G27).
    if not group.members:
        return None
    message = (
        f"group {group.group_id!r} has {len(group.members)} members; only they commit. Without generation_id_or_"
        "member_epoch offsets are taken while the group is empty: stop its members first"
    )
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message, Outcome.NOT_APPENDED, field="member_id")


def refusal_of_offset(each: OffsetToCommit, context: Context, settings: GroupSettings) -> Refusal | None:
    """Why a group cannot commit this offset; None if it can."""
    # Only that: a coordinator does not know where the log of another partition ends (G26).
    if each.offset < 0:
        message = f"committed_offset is {each.offset} and must be 0 or more"
        return Refusal(ErrorCode.INVALID_REQUEST, message, Outcome.NOT_APPENDED, field="committed_offset")
    size, most = len(each.metadata.encode()), settings.max_metadata_bytes
    if size > most:
        message = f"committed_metadata has {size} bytes, and {most} are allowed; shorten it"
        return Refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE, message, Outcome.NOT_APPENDED, field="committed_metadata")
    topic = context.topics.by_id(each.tp.topic_id)
    if topic is None:
        message = f"this coordinator knows no topic with id {each.tp.topic_id}; refresh metadata"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, message, Outcome.NOT_APPENDED, field="topic_id")
    if not 0 <= each.tp.partition < topic.partition_count:
        message = f"topic {topic.name!r} has {topic.partition_count} partitions and no partition {each.tp.partition}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, Outcome.NOT_APPENDED, field="partition_index")
    return None


def refusal_of_owner(group: Group, request: OffsetCommit | TxnOffsetCommit, tp: TopicPartition) -> Refusal | None:
    """Why the sender may not commit for a partition; None if it may, or if it is not a member of the group (G20)."""
    if request.member_epoch is None:
        return None
    current = group.current[request.member_id]
    if may_commit(current, group.owners.of(tp), request.member_id, request.member_epoch):
        return None
    message = (
        f"member {request.member_id} does not have {tp.topic_id}-{tp.partition} in epoch {request.member_epoch}; "
        f"its epoch is {current.member_epoch}"
    )
    return Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, Outcome.NOT_APPENDED)


def may_commit(
    current: groups_records.CurrentValue, owner: tuple[str, int] | None, member_id: str, given_epoch: int
) -> bool:
    """Whether a member may commit for a partition: it holds it, and held it already in the given epoch (KIP-1251).

    Without the range a commit that crosses a heartbeat would be refused.

    Args:
        current: the member's row.
        owner: who holds the partition, and since which epoch of that member.
        member_id: who commits.
        given_epoch: the epoch in its request.
    """
    if current.state is groups_records.MemberState.AWAY or owner is None or owner[0] != member_id:
        return False
    return owner[1] <= given_epoch <= current.member_epoch


# ---- offset_fetches
# Answers requests for committed offsets (G28, X17).


def fetch_offsets(group: Group, request: OffsetFetch) -> Decision:
    """Decide an OffsetFetch; an unknown group has no offsets, which is no error."""
    refusal = _refusal(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    wanted = request.partitions
    if wanted is None:
        # Staged offsets are listed too if the answer must be stable: leaving one out would say that there is none.
        staged = group.staged.keys() if request.require_stable else ()
        wanted = tuple(sorted({tp for tp, _ in group.offset_rows()}.union(staged)))
    found = tuple(_fetched(group, tp, require_stable=request.require_stable) for tp in wanted)
    return Decision(answer=OffsetsFetched(partitions=found), scope=request.group_id, barrier=request.require_stable)


def _fetched(group: Group, tp: TopicPartition, *, require_stable: bool) -> FetchedOffset:
    if require_stable and tp in group.staged:
        message = f"an open transaction is to commit an offset of partition {tp.partition}; ask again when it is over"
        return FetchedOffset(tp, refusal=Refusal(ErrorCode.UNSTABLE_OFFSET_COMMIT, message))
    value = group.offsets.get(tp.topic_id, {}).get(tp.partition)
    if value is None:
        return FetchedOffset(tp)
    return FetchedOffset(tp, value.offset, value.leader_epoch, value.metadata, value.commit_ms)


def _refusal(group: Group, request: OffsetFetch) -> Refusal | None:
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        return Refusal(ErrorCode.INVALID_GROUP_ID, message, field="group_id")
    if request.member_id is None or request.member_epoch is None:
        return None
    refusal = refusal_of_sender(group, request.member_id, None)
    if refusal is not None:
        return refusal
    epoch = group.current[request.member_id].member_epoch
    # In another epoch the member may ask for a partition that another one reads and commits by now (G28).
    if request.member_epoch == epoch:
        return None
    message = f"member_epoch is {request.member_epoch} and the member's is {epoch}; ask again after a heartbeat"
    return Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, field="member_epoch")


# ---- staging_producers
# What one coordinator partition knows of transactional producers: what they have staged, and which epochs may stage.
#
# Invariant: changed by `apply` alone, and the same for every order of rows that keeps the order of each key's own (G9).


class StagingProducers:
    """The producers of one shard, over all its groups: a marker names a producer and no group."""

    def __init__(self) -> None:
        self.fences: dict[int, groups_records.ProducerFenceValue] = {}
        """By producer id."""
        self.staged: dict[int, dict[groups_records.StagedOffsetKey, groups_records.StagedOffsetValue]] = {}
        """By producer id; there is no entry without a row."""

    def known_epoch(self, producer_id: int) -> int:
        """The newest epoch known of a producer; -1 if none is."""
        fence = self.fences.get(producer_id)
        epochs = [value.producer_epoch for value in self.staged.get(producer_id, {}).values()]
        return max([-1 if fence is None else fence.producer_epoch, *epochs])

    def has_staged(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the transaction of this epoch has staged offsets here, so that this partition takes part in it."""
        rows = self.staged.get(producer_id, {}).values()
        return any(value.producer_epoch == producer_epoch for value in rows)

    def apply(self, record: Record) -> None:
        """Apply one row to the state; rows of other kinds are ignored."""
        key, value = record
        if isinstance(key, groups_records.ProducerFenceKey):
            assert value is None or isinstance(value, groups_records.ProducerFenceValue)
            if value is None:
                self.fences.pop(key.producer_id, None)
            else:
                self.fences[key.producer_id] = value
        elif isinstance(key, groups_records.StagedOffsetKey):
            assert value is None or isinstance(value, groups_records.StagedOffsetValue)
            self._stage(key, value)

    def _stage(self, key: groups_records.StagedOffsetKey, value: groups_records.StagedOffsetValue | None) -> None:
        if value is not None:
            self.staged.setdefault(key.producer_id, {})[key] = value
            return
        rows = self.staged.get(key.producer_id, {})
        rows.pop(key, None)
        if not rows:
            self.staged.pop(key.producer_id, None)


# ---- staging
# Which offsets a transaction may stage, and what is written for them (X16, X18).


def stage(
    group: Group, producers: StagingProducers, request: TxnOffsetCommit, context: Context, settings: GroupSettings
) -> Decision:
    """Decide a commit of a transaction; ``group`` is empty if no group has this name.

    The first of a transaction waits until its coordinator knows that this partition takes part in it.
    """
    refusal = _refusal_of_producer(producers, request) or refusal_of_committer(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    order = group.top_order + 1
    records: list[Record] = []
    results: list[CommittedPartition] = []
    for each in request.offsets:
        refused = refusal_of_offset(each, context, settings) or refusal_of_owner(group, request, each.tp)
        results.append(CommittedPartition(each.tp, refused))
        if refused is None:
            value = groups_records.OffsetValue(each.offset, each.leader_epoch, each.metadata, context.unix_ms, order)
            key = groups_records.StagedOffsetKey(request.group_id, *each.tp, request.producer_id)
            records.append(Record(key, groups_records.StagedOffsetValue(request.producer_epoch, value)))
    takes_part = context.is_verified or producers.has_staged(request.producer_id, request.producer_epoch)
    # Nothing is staged before the transaction's coordinator knows of it: it sends markers only to partitions it knows,
    # so what is staged here would stay undecided for ever (X16).
    if records and not takes_part:
        whose = VerifyTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
        return Decision(scope=request.group_id, verify=whose)
    is_member = request.member_epoch is not None
    return Decision(
        batches=(tuple(records),) if records else (),
        answer=OffsetsCommitted(partitions=tuple(results)),
        scope=request.group_id,
        taken=(CommitTaken(request.group_id, request.member_id, None),) if is_member else None,
    )


def _refusal_of_producer(producers: StagingProducers, request: TxnOffsetCommit) -> Refusal | None:
    if not request.transactional_id:
        message = "transactional_id must not be empty; name the transaction's, or use OffsetCommit"
        return Refusal(ErrorCode.INVALID_REQUEST, message, Outcome.NOT_APPENDED, field="transactional_id")
    known = producers.known_epoch(request.producer_id)
    if request.producer_epoch >= known:
        return None
    # Checked after the verification too: the transaction may have ended meanwhile.
    message = (
        f"producer_epoch {request.producer_epoch} of producer {request.producer_id} is older than {known}, which is "
        "known here: its transaction is over"
    )
    return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, message, Outcome.NOT_APPENDED, field="producer_epoch")


# ---- promotion
# What a marker does to the offsets that its transaction has staged: commits or drops them (X16).
#
# Invariant: a marker ends what was staged in epochs below its own, and nothing else; afterwards its epoch is a fence.


def end_transaction(
    producers: StagingProducers, group_of: Callable[[str], Group], request: TransactionMarked, context: Context
) -> Decision:
    """Decide a marker. The fence is the last row, so that a repeated marker finishes what a failover cut in two."""
    sent, marker = request.producer, request.marker
    fence, staged = producers.fences.get(sent.producer_id), producers.staged.get(sent.producer_id, {})
    verdict = judge_marker(
        sent.producer_epoch,
        marker,
        known_epoch=producers.known_epoch(sent.producer_id),
        marked=None if fence is None else (fence.producer_epoch, fence.coordinator_epoch),
        is_open=bool(staged),
    )
    if verdict is MarkerVerdict.KNOWN:
        return Decision()
    if verdict is not MarkerVerdict.APPEND:
        return Decision(answer=marker_refusal(verdict, sent, marker))
    records: list[Record] = []
    group_ids = sorted({key.group_id for key in staged})
    for group_id in group_ids:
        changes = Changes(group_of(group_id), context.unix_ms)
        for key, value in staged.items():
            if key.group_id == group_id:
                _end(changes, key, value, committed=marker.committed)
        records += changes.batch()
    raised = groups_records.ProducerFenceValue(sent.producer_epoch, marker.coordinator_epoch, context.unix_ms)
    records.append(Record(groups_records.ProducerFenceKey(sent.producer_id), raised))
    return Decision(batches=(tuple(records),), writes=tuple(group_ids))


def _end(
    changes: Changes, key: groups_records.StagedOffsetKey, value: groups_records.StagedOffsetValue, *, committed: bool
) -> None:
    known = changes.group.offsets.get(key.topic_id, {}).get(key.partition)
    if committed and counts(value.offset, known):
        changes.put(key, None)
        changes.put(groups_records.OffsetKey(key.group_id, *key.tp), value.offset)
    else:
        # Aborted, or a later commit has already gone further.
        changes.delete_staged(key)


def counts(staged: groups_records.OffsetValue, known: groups_records.OffsetValue | None) -> bool:
    """Whether a staged offset replaces the committed one: the order of sending counts, not the order of deciding."""
    return known is None or known.order < staged.order
