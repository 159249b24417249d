"""The coordinator of groups in a scenario: the production machine, asked by members, by tools and by transactions.

Invariant: it decides nothing that no command, marker or tick asked for. Partitions are those of the topic that groups
read, and are named by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.core.coordinator.machine import Record, VerifyTransaction
from strandline.core.errors import Refusal
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    HeartbeatAnswered,
    OffsetCommit,
    OffsetsCommitted,
    OffsetToCommit,
    TransactionMarked,
    TxnOffsetCommit,
)
from strandline.core.groups.records import OffsetKey, StagedOffsetKey, StagedOffsetValue
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.types import LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition
from strandline.runtime.patterns import Re2Patterns
from strandline.sim.scenario.machine_at_once import GROUPS_TP, SOURCE, SOURCE_ID, MachineAtOnce
from strandline.sim.scenario.telling import refused_text

if TYPE_CHECKING:
    from strandline.sim.scenario.stage import Stage

_REBALANCE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Offsets that somebody commits for a group: a member, or nobody's member, and perhaps in a transaction."""

    group: str
    offsets: tuple[tuple[int, int], ...]
    """Partition and offset."""
    member: str | None = None
    member_epoch: int | None = None
    """None: the one that this member heard last."""
    producer: ProducerIdentity | None = None


class GroupCoordinator:
    """That of all groups of a scenario."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

        def make(epoch: LeaderEpoch) -> GroupMachine:
            return GroupMachine(Re2Patterns())

        self._shard = MachineAtOnce(make, lambda: stage.now_ms, self._tell)
        # What each member heard last: its epoch and its partitions.
        self._heard: dict[tuple[str, str], tuple[int, tuple[TopicPartition, ...]]] = {}

    def heartbeat(self, group: str, member: str, *, session_ms: int | None, label: str) -> None:
        """A member joins, or says that it lives and has taken up what it heard."""
        known = self._heard.get((group, member))
        request = ConsumerGroupHeartbeat(
            group_id=group,
            member_id=member,
            member_epoch=JOIN_EPOCH if known is None else known[0],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=_REBALANCE_MS if known is None else None,
            subscribed_topic_names=(SOURCE,) if known is None else None,
            topic_partitions=() if known is None else known[1],
        )
        answer = self._asked(request)
        if isinstance(answer, Refusal):
            self._heard.pop((group, member), None)
            self._stage.clients.note(label, refused_text(answer), answer)
            return
        assert isinstance(answer, HeartbeatAnswered), f"an answer to no heartbeat: {answer!r}"
        before = () if known is None else known[1]
        partitions = before if answer.assignment is None else answer.assignment
        self._heard[group, member] = (answer.member_epoch, partitions)
        has = ",".join(str(tp.partition) for tp in partitions) or "none"
        self._stage.clients.note(label, f"epoch {answer.member_epoch}, has {has}", None)

    def commit(self, said: Commit, label: str) -> None:
        """Offsets are committed; those of a transaction wait for its coordinator's consent as a batch does."""
        request = self._request(said)
        decision = self._shard.decide(request)
        if decision.verify is None:
            self._decide(request, label, is_verified=False)
            return
        refusal = self._consent(decision.verify)
        held = self._stage.clients.producers.held_back.get(decision.verify.producer_id)
        if held is None:
            self._verified(request, refusal, label)
            return
        held.append(lambda: self._verified(request, refusal, label))
        self._stage.tell(f"{label}: waits for the coordinator")

    def _consent(self, whose: VerifyTransaction) -> Refusal | None:
        return self._stage.consent(whose.producer_id, whose.producer_epoch, GROUPS_TP)

    def _verified(self, request: OffsetCommit | TxnOffsetCommit, refusal: Refusal | None, label: str) -> None:
        if refusal is None:
            self._decide(request, label, is_verified=True)
        else:
            self._stage.clients.note(label, refused_text(refusal), refusal)

    def _request(self, said: Commit) -> OffsetCommit | TxnOffsetCommit:
        offsets = tuple(OffsetToCommit(TopicPartition(SOURCE_ID, p), Offset(offset)) for p, offset in said.offsets)
        member_id, member_epoch = said.member or "", said.member_epoch
        if said.member is not None and member_epoch is None:
            member_epoch = self._heard.get((said.group, said.member), (JOIN_EPOCH, ()))[0]
        if said.producer is None:
            return OffsetCommit(group_id=said.group, offsets=offsets, member_id=member_id, member_epoch=member_epoch)
        return TxnOffsetCommit(
            transactional_id=self._stage.clients.producers.transactional_id_of(said.producer.producer_id),
            producer_id=said.producer.producer_id,
            producer_epoch=said.producer.producer_epoch,
            group_id=said.group,
            offsets=offsets,
            member_id=member_id,
            member_epoch=member_epoch,
        )

    def _decide(self, request: OffsetCommit | TxnOffsetCommit, label: str, *, is_verified: bool) -> None:
        answer = self._asked(request, is_verified=is_verified)
        if isinstance(answer, OffsetsCommitted):
            refusal = next((each.refusal for each in answer.partitions if each.refusal is not None), None)
        else:
            assert isinstance(answer, Refusal), f"an answer to no commit: {answer!r}"
            refusal = answer
        done = "staged" if isinstance(request, TxnOffsetCommit) else "committed"
        self._stage.clients.note(label, done if refusal is None else refused_text(refusal), refusal)

    def mark(self, producer: ProducerStamp, said: Marker) -> Refusal | None:
        """A transaction that committed offsets is over; why this is refused, None if it is not."""
        answer = self._asked(TransactionMarked(producer, said))
        return answer if isinstance(answer, Refusal) else None

    def _asked(self, request: object, *, is_verified: bool = False) -> object:
        decision = self._shard.decide(request, is_verified=is_verified)
        for effect in self._shard.take(decision):
            raise AssertionError(f"a group wants nothing of others: {effect!r}")
        return decision.answer

    def tick(self) -> None:
        """Time has passed."""
        for effect in self._shard.tick():
            raise AssertionError(f"a group wants nothing of others: {effect!r}")

    def restart(self) -> None:
        """Another node coordinates; it has what was written."""
        self._shard.restart()

    def offsets(self, group: str) -> dict[int, int]:
        """What is committed, by partition."""
        return {tp.partition: value.offset for tp, value in self._shard.machine.group(group).offset_rows()}

    def _tell(self, record: Record) -> None:
        key, value = record
        if isinstance(key, OffsetKey) and value is not None:
            self._stage.tell(
                f"{key.group_id}: partition {key.partition} is at {self.offsets(key.group_id)[key.partition]}"
            )
        elif isinstance(key, StagedOffsetKey) and isinstance(value, StagedOffsetValue):
            whose = f"{key.producer_id}:{value.producer_epoch}"
            self._stage.tell(f"{key.group_id}: partition {key.partition} staged at {value.offset.offset} by {whose}")
