"""The offsets of one group at its coordinator: what is committed, and how it is committed.

Invariant: an error of the coordinator is never taken for "nothing is committed" (G28), and a partition that was not
committed is never reported as one that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from strandline.client.cluster.metadata import Cluster
from strandline.client.groups.coordinator import ATTEMPT_MS, GroupCoordinator, RequestVerdict, passes_by, verdict_of
from strandline.client.produce.delivery import ProducerIdentity
from strandline.client.records import TopicPartition
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import LeaderEpoch, Offset
from strandline.rpc.convert.errors import read_error
from strandline.v1 import group_service_pb2 as pb, partition_pb2

_OUTCOMES = {pb.COMMIT_OUTCOME_NOT_APPENDED: Outcome.NOT_APPENDED, pb.COMMIT_OUTCOME_MAY_APPEAR: Outcome.MAY_APPEAR}

_OF_ANOTHER_EPOCH = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

_NO_ANSWER = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves this partition out", Outcome.MAY_APPEAR)


class OffsetAndMetadata(NamedTuple):
    """A position as a group commits it."""

    offset: Offset
    """The next offset to read: one more than that of the last record that was worked on."""
    metadata: str = ""
    """A text of the committer's, up to 4,096 bytes."""
    leader_epoch: LeaderEpoch | None = None
    """Leader epoch of the last record that was read, if it is known."""
    commit_timestamp_ms: int | None = None
    """When it was committed, in ms since 1970 by the coordinator's clock; None in what is to be committed."""


Offsets = Mapping[tuple[str, int], int | OffsetAndMetadata] | Mapping[TopicPartition, int | OffsetAndMetadata]
"""Positions by partition; a bare number has no text. Two kinds, because a mapping is invariant in its keys."""


def read_offsets(offsets: Offsets, metadata: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions as they are committed; ``metadata`` is the text of the bare numbers.

    Raises:
        ValueError, TypeError: no request can hold one of them.
    """
    found = {
        TopicPartition(*partition): one
        if isinstance(one, OffsetAndMetadata)
        else OffsetAndMetadata(Offset(one), metadata)
        for partition, one in offsets.items()
    }
    # Built here too, so that an error reaches the caller, and not the task that sends them.
    _rows_of(found)
    return found


class AsMember(NamedTuple):
    """The member for which offsets are committed and fetched."""

    member_id: str
    member_epoch: int
    instance_id: str | None


class CommittedOffsets:
    """The offsets of one group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self.coordinator = GroupCoordinator(cluster, group_id)
        self.member: Callable[[], AsMember | None] = lambda: None
        """The member that commits; None if the consumer is not a member (G27)."""
        self._sequence = 0

    @property
    def group_id(self) -> str:
        """The group."""
        return self.coordinator.group_id

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, member: AsMember | None = None, deadline_ms: int
    ) -> dict[TopicPartition, Refusal]:
        """Commit these; the partitions that were refused, each with why and its outcome.

        ``member`` is who committed, in the epoch of that moment, which covers what it has held since (KIP-1251);
        None: no member (G27)."""
        request = pb.OffsetCommitRequest(cluster_id=self._cluster.cluster_id, group_id=self.group_id)
        request.topics.extend(_rows_of(offsets))
        try:
            answered = await self.coordinator.ask(
                lambda to: to.OffsetCommit,
                request,
                _judge_commit,
                deadline_ms=deadline_ms,
                before_each=lambda: self._sign(request, member),
            )
        except Refused as refused:
            return dict.fromkeys(offsets, refused.refusal)
        # An earlier attempt whose answer was lost may have been taken.
        outcome = Outcome.MAY_APPEAR if answered.is_repeated else None
        return {
            tp: replace(refusal, outcome=outcome or refusal.outcome)
            for tp, refusal in _refused_of(offsets, answered.answer).items()
        }

    async def stage(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member: AsMember | None,
        transactional_id: str,
        identity: ProducerIdentity,
        deadline_ms: int,
    ) -> None:
        """Commit these as part of a transaction, all of them (X16). Sent once for a transaction, so that no late copy
        of an earlier request can undo a later one.

        Raises:
            Refused: some were refused, or the coordinator did not answer in time; the transaction must be aborted.
        """
        request = pb.TxnOffsetCommitRequest(
            cluster_id=self._cluster.cluster_id,
            transactional_id=transactional_id,
            group_id=self.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=None if member is None else member.member_epoch,
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None else member.instance_id,
        )
        request.topics.extend(_rows_of(offsets))
        answered = await self.coordinator.ask(
            lambda to: to.TxnOffsetCommit, request, _judge_commit, deadline_ms=deadline_ms
        )
        for tp, refusal in _refused_of(offsets, answered.answer).items():
            message = f"group {self.group_id} at {tp.topic}-{tp.partition}: {refusal.message}"
            raise Refused(refusal.code, message, refusal.outcome)

    def _sign(self, request: pb.OffsetCommitRequest, member: AsMember | None) -> None:
        """Say who commits; every sending has a number of its own, so that a late copy changes nothing (G19)."""
        if member is None:
            return
        self._sequence += 1
        request.member_id, request.sequence = member.member_id, self._sequence
        request.generation_id_or_member_epoch = member.member_epoch
        if member.instance_id is not None:
            request.group_instance_id = member.instance_id
        # The same message is signed for each attempt, and the coordinator may be another by now.
        request.ClearField("coordinator_epoch")
        if (epoch := self.coordinator.epoch) is not None:
            request.coordinator_epoch = epoch

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None, *, deadline_ms: int, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed, by partition, None where nothing is; without partitions all that is.

        With ``require_stable`` it waits until no member can have committed anything newer before it was asked (G10).

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        asked = self._question(partitions)
        asked.require_stable = require_stable
        answered = await self.coordinator.ask(lambda to: to.OffsetFetch, asked, _judge_fetch, deadline_ms=deadline_ms)
        return _read_fetched(answered.answer)

    async def fetch_once(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `fetch`, by one attempt; empty if there is no answer now.

        Raises:
            Refused: the coordinator refused, and will do so again.
        """
        asked = self._question(partitions)
        try:
            answer = await self.coordinator.ask_once(
                lambda to: to.OffsetFetch, asked, _judge_fetch, deadline_ms=ATTEMPT_MS
            )
        except Refused as refused:
            # A member's epoch that has just risen, or that its next heartbeat brings (G28).
            is_overtaken = self.member() is not None and refused.refusal.code in _OF_ANOTHER_EPOCH
            if is_overtaken or passes_by(refused.refusal):
                return {}
            raise
        return _read_fetched(answer)

    def _question(self, partitions: Iterable[TopicPartition] | None) -> pb.OffsetFetchRequest:
        group = pb.OffsetFetchGroup(group_id=self.group_id)
        if (member := self.member()) is not None:
            group.member_id, group.member_epoch = member.member_id, member.member_epoch
        if partitions is not None:
            rows = [
                partition_pb2.TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in _by_topic(partitions).items()
            ]
            group.topics.CopyFrom(pb.OffsetFetchTopics(topics=rows))
        return pb.OffsetFetchRequest(cluster_id=self._cluster.cluster_id, groups=[group], require_stable=True)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def _rows_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[pb.OffsetCommitTopic]:
    found: list[pb.OffsetCommitTopic] = []
    for topic, parts in _by_topic(offsets).items():
        rows = pb.OffsetCommitTopic(name=topic)
        for index in parts:
            one = offsets[TopicPartition(topic, index)]
            rows.partitions.add(
                partition_index=index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        found.append(rows)
    return found


def _refused_of(
    offsets: Iterable[TopicPartition], answer: pb.OffsetCommitResponse | pb.TxnOffsetCommitResponse
) -> dict[TopicPartition, Refusal]:
    """The partitions that an answer refuses, or leaves out, with why."""
    rows_of = {
        TopicPartition(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions
    }
    said = {tp: _refusal_of(rows_of[tp]) if tp in rows_of else _NO_ANSWER for tp in offsets}
    return {tp: refusal for tp, refusal in said.items() if refusal is not None}


def _refusal_of(row: pb.OffsetCommitPartitionResponse) -> Refusal | None:
    refusal = read_error(row)
    return None if refusal is None else replace(refusal, outcome=_OUTCOMES.get(row.outcome, Outcome.MAY_APPEAR))


def _judge_commit(answer: pb.OffsetCommitResponse | pb.TxnOffsetCommitResponse) -> RequestVerdict:
    """If all partitions were refused because the coordinator is missing, that is the refusal of the whole request."""
    refusals = [_refusal_of(row) for topic in answer.topics for row in topic.partitions]
    whole = next((one for one in refusals if one is not None and passes_by(one)), None)
    return RequestVerdict(whole, answer.current_coordinator if answer.HasField("current_coordinator") else None)


def _judge_fetch(answer: pb.OffsetFetchResponse) -> RequestVerdict:
    (group,) = answer.groups
    verdict = verdict_of(group)
    if verdict.refusal is None:
        rows = [row for topic in group.topics for row in topic.partitions]
        # One refused partition refuses all: if it were left out, it would look like one without a commit (G28).
        return verdict._replace(refusal=next((one for row in rows if (one := read_error(row)) is not None), None))
    return verdict


def _read_fetched(answer: pb.OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    (group,) = answer.groups
    return {
        TopicPartition(topic.name, row.partition_index): _read_offset(row)
        for topic in group.topics
        for row in topic.partitions
    }


def _read_offset(row: pb.OffsetFetchPartitionResponse) -> OffsetAndMetadata | None:
    if not row.HasField("committed_offset"):
        return None
    return OffsetAndMetadata(
        Offset(row.committed_offset),
        row.metadata,
        LeaderEpoch(row.committed_leader_epoch) if row.HasField("committed_leader_epoch") else None,
        row.commit_timestamp_ms if row.HasField("commit_timestamp_ms") else None,
    )
