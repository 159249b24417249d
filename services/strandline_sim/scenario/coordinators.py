"""The coordinators of groups and of transactions that the verbs of a scenario drive.

The coordinator of transactional ids in a scenario: the production machine, asked by processes and by leaders.

Invariant: it decides only what a command or tick asked for, and its markers wait until a command lets them arrive.
It has nothing to do with a producer that never asked it for an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from strandline.core.coordinator.machine import Record, Reports, VerifyTransaction
from strandline.core.errors import ErrorCode, Refusal
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
from strandline.core.log.effects import Effect, SendTxnMarkers
from strandline.core.transactions import messages
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.records import TransactionalId, TransactionalIdKey
from strandline.core.types import Acks, LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition
from strandline.runtime.patterns import Re2Patterns
from strandline_sim.scenario.nodes import GROUPS_TP, SOURCE, SOURCE_ID, TP, MachineAtOnce
from strandline_sim.scenario.performing import Played
from strandline_sim.scenario.telling import refused_text
from strandline_sim.scenario.transactions import marker as marker_of

# ---- group coordinator
# The coordinator of groups in a scenario: the production machine, asked by members, by tools and by transactions.
#
# Invariant: it decides only what a command, marker or tick asked for. Partitions are those of the topic that groups
# read, and are named by their numbers.

_REBALANCE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets committed for a group, by a member or without one, perhaps in a transaction."""

    group: str
    offsets: tuple[tuple[int, int], ...]
    """Offsets by partition."""
    member: str | None = None
    member_epoch: int | None = None
    """None for the member epoch that this member was told last."""
    producer: messages.ProducerIdentity | None = None


class GroupCoordinator:
    """The coordinator of all groups of a scenario."""

    def __init__(self, stage: Played) -> None:
        self._stage = stage

        def make(epoch: LeaderEpoch) -> GroupMachine:
            return GroupMachine(Re2Patterns())

        self._shard = MachineAtOnce(make, lambda: stage.now_ms, self._tell)
        # What each member was told last: its epoch and its partitions.
        self._heard: dict[tuple[str, str], tuple[int, tuple[TopicPartition, ...]]] = {}

    def heartbeat(self, group: str, member: str, *, session_ms: int | None, label: str) -> None:
        """A member joins, or reports that it lives and has taken over its assignment."""
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

    def commit(self, said: GroupCommit, label: str) -> None:
        """Commit offsets; those of a transaction wait for its coordinator's consent, as a batch does."""
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

    def _request(self, said: GroupCommit) -> OffsetCommit | TxnOffsetCommit:
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
        """End a transaction that committed offsets. Returns why this is refused, None if it is not."""
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
        """Let another node coordinate, with everything that was written."""
        self._shard.restart()

    def offsets(self, group: str) -> dict[int, int]:
        """The committed offsets, by partition."""
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


FIRST_ID = 1_000
"""The first producer id that the coordinator gives; other producers have ids from 1 on."""
_PLACE = TopicPartition("00000000-0000-4000-8000-000000000004", 0)
_NO_LEADER = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader that runs")
_MARKER_TIMEOUT_MS = 30_000


class _Ids:
    """`ProducerIdSupply` without an end."""

    def __init__(self) -> None:
        self._next = FIRST_ID

    def next_id(self) -> int | None:
        """The next one."""
        return self._next

    def take(self, producer_id: int) -> None:
        """Mark the id as used."""
        self._next = producer_id + 1


class TransactionCoordinator:
    """The coordinator of all transactional ids of a scenario."""

    def __init__(self, stage: Played, groups: GroupCoordinator) -> None:
        self._stage = stage
        self._groups = groups
        ids = _Ids()
        self._supply = ids

        def make(epoch: LeaderEpoch) -> TransactionMachine:
            return TransactionMachine(Reports(_PLACE, epoch), ids)

        self._shard = MachineAtOnce(make, lambda: stage.now_ms, self._tell)
        self._under_way: list[tuple[LeaderEpoch, messages.TxnMarker]] = []

    @property
    def ids(self) -> dict[str, TransactionalId]:
        """What is known, by transactional id."""
        return self._shard.machine.ids

    def used_before(self, transactional_id: str, epoch: int) -> None:
        """Enter this id, at this epoch, in the coordinator's log before the run."""
        identity = messages.ProducerIdentity(self._supply.next_id() or FIRST_ID, epoch)
        self._supply.take(identity.producer_id)
        value = TransactionalId(identity=identity, timeout_ms=60_000, update_ms=self._stage.now_ms)
        self._shard.write(Record(TransactionalIdKey(transactional_id), value))

    def init(self, process: str, request: messages.InitProducerId, label: str) -> None:
        """A process asks for its identity."""
        self._answered(process, self._asked(request), label, request.transactional_id)

    def end(self, process: str, *, committed: bool, identity: messages.ProducerIdentity, label: str) -> None:
        """A process ends its transaction."""
        transactional_id = self._stage.clients.producers.transactional_id_of(identity.producer_id)
        request = messages.EndTxn(transactional_id=transactional_id, identity=identity, committed=committed)
        self._answered(process, self._asked(request), label, transactional_id)

    def verdict(self, transactional_id: str, identity: messages.ProducerIdentity, tp: TopicPartition) -> Refusal | None:
        """The coordinator's answer about a partition to which a transaction writes for the first time."""
        answer = self._asked(
            messages.AddPartitions(transactional_id=transactional_id, identity=identity, partitions=(tp,))
        )
        return answer if isinstance(answer, Refusal) else None

    def _asked(self, request: object) -> object:
        decision = self._shard.decide(request)
        self._do(self._shard.take(decision))
        return decision.answer

    def _answered(self, process: str, answer: object, label: str, transactional_id: str) -> None:
        if isinstance(answer, Refusal):
            self._stage.clients.note(label, refused_text(answer), answer)
            return
        assert isinstance(answer, messages.ProducerIdGiven | messages.TxnEnded), f"an answer to no process: {answer!r}"
        self._stage.clients.producers.identify(process, *answer.identity, transactional_id)
        self._stage.clients.note(label, f"goes on as {_text(answer.identity)}", None)

    def tick(self) -> None:
        """Time has passed."""
        self._do(self._shard.tick())

    def restart(self) -> None:
        """Let another node coordinate, with everything that was written; it resends what is not complete in the log."""
        self._under_way.clear()
        self._shard.restart()
        self._stage.tell(f"coordinator: begins again, epoch {self._shard.epoch}")
        self.tick()

    def _do(self, effects: Iterator[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, SendTxnMarkers), f"a coordinator wants no {effect!r}"
            for marker in effect.markers:
                self._under_way.append((effect.leader_epoch, marker))
                self._stage.tell(f"coordinator: {_marker_text(marker)} is under way{_where(marker.tp)}")

    def taken_markers(self) -> Iterable[Callable[[], None]]:
        """Take the markers in transit, each as the function that lets it arrive."""
        taken, self._under_way = self._under_way, []
        for epoch, marker in taken:
            yield partial(self._arrive, epoch, marker)

    def _arrive(self, epoch: LeaderEpoch, marker: messages.TxnMarker) -> None:
        def answered(refusal: Refusal | None) -> None:
            self._do(self._shard.heard(messages.TxnMarkerAnswer(marker, refusal)))

        said = Marker(marker.committed, epoch)
        stamp = ProducerStamp(*marker.identity, -1)
        if marker.tp == GROUPS_TP:
            answered(self._groups.mark(stamp, said))
            return
        assert marker.tp == TP, "a scenario has one partition"
        partition = self._stage.control.partition()
        leader = None if partition is None or partition.leader is None else self._stage.actor(partition.leader)
        if leader is None or not leader.is_running:
            answered(_NO_LEADER)
            return
        value = _marker_text(marker)
        self._stage.clients.produce(
            leader,
            marker_of(said, stamp),
            (value,),
            label=value,
            acks=Acks.ALL,
            timeout_ms=_MARKER_TIMEOUT_MS,
            then=answered,
        )

    def _tell(self, record: Record) -> None:
        assert isinstance(record.key, TransactionalIdKey), f"a record of no transactional id: {record.key}"
        value = record.value
        assert isinstance(value, TransactionalId), "no scenario is so long that an id is forgotten"
        follows = "" if value.next_producer_id is None else f", then {_text(value.next_identity)}"
        self._stage.tell(
            f"coordinator: {record.key.transactional_id} is {value.state} at {_text(value.identity)}{follows}"
        )


def _text(identity: messages.ProducerIdentity) -> str:
    return f"{identity.producer_id}:{identity.producer_epoch}"


def _marker_text(marker: messages.TxnMarker) -> str:
    return f"{'commit' if marker.committed else 'abort'}({_text(marker.identity)})"


def _where(tp: TopicPartition) -> str:
    return " to the groups" if tp == GROUPS_TP else ""
