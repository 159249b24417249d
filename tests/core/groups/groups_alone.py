"""A machine of groups without a shard: what it decides is applied and committed at once, and time stands until moved.

Every decision passes the invariants; `folded` is the state that a new coordinator would load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.core.coordinator.shard_cells import code as code

from strandline.core.coordinator.machine import Context, Decision, Record, TopicEntry, VerifyTransaction
from strandline.core.errors import Refusal
from strandline.core.groups import messages
from strandline.core.groups.group import Group
from strandline.core.groups.happenings import GroupChange, MemberChange
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import (
    AssignedPartition,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberState,
    MemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from strandline.core.types import LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition
from strandline.runtime.patterns import Re2Patterns

GROUP = "readers"
Parts = Mapping[str, Iterable[int]]
"""Topic name to partitions; in tests a topic's id is its name with ``-id`` behind it."""


class Topics:
    """A `TopicDirectory` that tests change."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self._entries: dict[str, TopicEntry] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int, *racks: Iterable[str], internal: bool = False, topic_id: str = "") -> None:
        of_partitions = tuple(frozenset(each) for each in racks) or (frozenset[str](),) * count
        assert len(of_partitions) == count
        self._entries[name] = TopicEntry(topic_id or f"{name}-id", name, of_partitions, internal)
        self.version += 1

    def drop(self, name: str) -> None:
        del self._entries[name]
        self.version += 1

    def by_name(self, name: str) -> TopicEntry | None:
        return self._entries.get(name)

    def by_id(self, topic_id: str) -> TopicEntry | None:
        return next((each for each in self._entries.values() if each.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._entries.keys()


@dataclass
class GroupsAlone:
    """The machine with a log and a clock."""

    topics: Topics
    settings: messages.GroupSettings = field(default_factory=lambda: messages.GroupSettings(assignment_interval_ms=0))
    now_ms: int = 1_000_000
    coordinator_epoch: int = 7
    log: list[Record] = field(default_factory=list)
    works: list[Any] = field(default_factory=list)
    seen: list[GroupChange | MemberChange] = field(default_factory=list)
    """What the machine showed of itself."""
    commits: list[tuple[str, TopicPartition, str | None]] = field(default_factory=list)
    """Commits it showed, with the error of those it refused."""
    verified: list[VerifyTransaction] = field(default_factory=list)
    """What the coordinator of a transaction was asked, and consented to."""

    def __post_init__(self) -> None:
        self.machine = GroupMachine(Re2Patterns(), self.settings, self)
        self.machine.excuse(self.context)
        self.invariants = GroupInvariants()

    def group_changed(self, change: GroupChange, now_ms: int) -> None:
        assert now_ms == self.now_ms
        self.seen.append(change)

    def member_changed(self, change: MemberChange, now_ms: int) -> None:
        self.seen.append(change)

    def committed(self, group_id: str, tp: TopicPartition) -> None:
        self.commits.append((group_id, tp, None))

    def commit_refused(self, group_id: str, tp: TopicPartition, error: str) -> None:
        self.commits.append((group_id, tp, error))

    def ticked(self, groups: Mapping[str, Group], context: Context) -> None:
        assert groups is self.machine.groups

    @property
    def context(self) -> Context:
        return Context(self.now_ms, self.now_ms, LeaderEpoch(self.coordinator_epoch), self.topics)

    @property
    def group(self) -> Group:
        return self.machine.group(GROUP)

    def take(self, decision: Decision, request: object | None = None, *, answered: bool = True) -> Any:
        """Do what a shard does with a decision."""
        self.invariants.decided(request, decision.batches)
        for batch in decision.batches:
            assert batch, "an empty batch"
            for record in batch:
                self.log.append(record)
                self.machine.apply(record)
        if decision.taken is not None:
            self.machine.taken(decision.taken, self.now_ms)
        if decision.answered is not None and answered:
            self.machine.answered(decision.answered, self.now_ms)
        if decision.work is not None:
            self.works.append(decision.work)
        return decision.answer

    def ask(self, request: object, *, answered: bool = True) -> Any:
        """Send a request; the answer, or the refusal. A transaction's coordinator consents to all that is asked."""
        decision = self.machine.decide(request, self.context)
        if decision.verify is not None:
            self.verified.append(decision.verify)
            decision = self.machine.decide(request, replace(self.context, is_verified=True))
        return self.take(decision, request, answered=answered)

    def tick(self, after_ms: int = 0) -> int:
        """Let time pass, then tick; how many records that wrote."""
        self.now_ms += after_ms
        before = len(self.log)
        for decision in self.machine.tick(self.context):
            self.take(decision)
        return len(self.log) - before

    def compute(self) -> None:
        """Let the worker finish what it was given."""
        while self.works:
            self.take(self.machine.computed(self.works.pop(0)(), self.context))

    def beat(self, member_id: str, epoch: int | None = None, owned: Parts | None = None, **named: Any) -> Any:
        """A heartbeat in the member's epoch, if no other is given."""
        answered = named.pop("answered", True)
        request = messages.ConsumerGroupHeartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=self.group.current[member_id].member_epoch if epoch is None else epoch,
            topic_partitions=None if owned is None else tps(owned),
            **named,
        )
        return self.ask(request, answered=answered)

    def join(self, member_id: str, *names: str, **named: Any) -> Any:
        """A heartbeat that joins, subscribed to these topics."""
        given: dict[str, Any] = {"subscribed_topic_names": names, "rebalance_timeout_ms": 10_000} | named
        return self.beat(member_id, 0, {}, **given)

    def settle(self, *member_ids: str) -> None:
        """Members that do as they are asked, until nothing changes."""
        for _ in range(10):
            self.tick(1)
            self.compute()
            before = len(self.log)
            for member_id in member_ids or tuple(self.group.members):
                self.beat(member_id, owned=parts(*(each.tp for each in self.group.current[member_id].assigned)))
            if len(self.log) == before and not self.machine.tick(self.context):
                return
        raise AssertionError(f"not settled: {self.group.state}")

    def commit(self, offset: int = 5, epoch: int | None = None, member_id: str = "", **named: Any) -> Any:
        """Commit one offset for each of the partitions in ``of``; the answer's partitions, or the refusal."""
        offsets = tuple(messages.OffsetToCommit(tp, Offset(offset)) for tp in tps(named.pop("of", {"foo": [0]})))
        request = messages.OffsetCommit(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, offsets=offsets, **named
        )
        answer = self.ask(request)
        return answer if isinstance(answer, Refusal) else answer.partitions

    def stage(
        self, offset: int, *, producer: int = 9, producer_epoch: int = 0, of: Parts | None = None, **named: Any
    ) -> Any:
        """Commit one offset for each of these partitions in a transaction; as `commit`."""
        request = messages.TxnOffsetCommit(
            **{"group_id": GROUP, "transactional_id": "t"} | named,
            producer_id=producer,
            producer_epoch=producer_epoch,
            offsets=tuple(messages.OffsetToCommit(tp, Offset(offset)) for tp in tps(of or {"foo": [0]})),
        )
        answer = self.ask(request)
        return answer if isinstance(answer, Refusal) else answer.partitions

    def mark(self, producer_epoch: int, *, commit: bool = True, producer: int = 9, coordinator: int = 1) -> Any:
        """A marker of a producer; None, or the refusal."""
        sent = ProducerStamp(producer, producer_epoch, -1)
        return self.ask(messages.TransactionMarked(sent, Marker(commit, coordinator)))

    def offsets(self, of: Parts | None = None, *, require_stable: bool = False) -> list[object]:
        """The committed offset of each of these partitions, None without one, or the code of the refusal."""
        request = messages.OffsetFetch(
            group_id=GROUP, partitions=tps(of or {"foo": [0]}), require_stable=require_stable
        )
        return [
            each.offset if each.refusal is None else each.refusal.code.name for each in self.ask(request).partitions
        ]

    def has(self, member_id: str) -> dict[str, list[int]]:
        return parts(*(each.tp for each in self.group.current[member_id].assigned))

    def folded(self) -> dict[str, Any]:
        """The state of a machine that loads this log."""
        other = GroupMachine(Re2Patterns(), self.settings)
        for record in self.log:
            other.apply(record)
        return state_of(other)


def state_of(machine: GroupMachine) -> dict[str, Any]:
    """All that `apply` builds, for comparisons."""
    return {
        group_id: {**vars(group), "owners": group.owners.as_dict(), "state": group.state}
        for group_id, group in machine.groups.items()
    } | ({"": vars(machine.producers)} if machine.producers.fences or machine.producers.staged else {})


def tps(partitions: Parts) -> tuple[TopicPartition, ...]:
    """Partitions by name."""
    return tuple(TopicPartition(f"{name}-id", p) for name, indices in partitions.items() for p in indices)


def parts(*partitions: TopicPartition) -> dict[str, list[int]]:
    """The reverse of `tps`, sorted."""
    found: dict[str, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id.removesuffix("-id"), []).append(partition)
    return found


def answered_with(answer: messages.HeartbeatAnswered) -> tuple[int, dict[str, list[int]] | None]:
    """The epoch and the partitions in an answer; None: it says nothing about partitions."""
    assert isinstance(answer, messages.HeartbeatAnswered), answer
    return answer.member_epoch, None if answer.assignment is None else parts(*answer.assignment)


def codes(results: Iterable[messages.CommittedPartition]) -> list[str]:
    """OK or the code's name, for each partition of a commit."""
    return ["OK" if each.refusal is None else each.refusal.code.name for each in results]


def held(epoch: int, partitions: Parts) -> tuple[AssignedPartition, ...]:
    """Assigned partitions, all since one epoch."""
    return tuple(sorted(AssignedPartition(tp, epoch) for tp in tps(partitions)))


def seed(
    alone: GroupsAlone, epoch: int, members: Mapping[str, Parts], names: tuple[str, ...], previous: int | None = None
) -> None:
    """Write the rows of a group that is stable in ``epoch`` with these assignments, as Kafka's tests begin."""
    said = MemberValue(session_timeout_ms=45_000, rebalance_timeout_ms=10_000, topic_names=tuple(sorted(names)))
    records = [Record(GroupKey(GROUP), GroupValue(epoch))]
    before = epoch - 1 if previous is None else previous
    for member_id, partitions in members.items():
        records += [
            Record(MemberKey(GROUP, member_id), said),
            Record(TargetKey(GROUP, member_id), TargetValue(epoch, tuple(sorted(tps(partitions))))),
            Record(
                CurrentKey(GROUP, member_id), CurrentValue(epoch, before, MemberState.STABLE, held(epoch, partitions))
            ),
        ]
    digest = alone.machine.subscriptions.digest([said], alone.topics)
    records.append(Record(TargetEpochKey(GROUP), TargetEpochValue(epoch, "uniform", digest)))
    alone.take(Decision(batches=(tuple(records),)))
    alone.machine.excuse(alone.context)


def aim(alone: GroupsAlone, epoch: int, targets: Mapping[str, Parts]) -> None:
    """Write a target, as the assignor would."""
    members = alone.group.members.values()
    digest = alone.machine.subscriptions.digest(members, alone.topics)
    value = alone.group.value
    rows = [
        Record(TargetKey(GROUP, member_id), TargetValue(epoch, tuple(sorted(tps(partitions)))))
        for member_id, partitions in targets.items()
    ]
    last = Record(TargetEpochKey(GROUP), TargetEpochValue(epoch, "uniform", digest))
    group = Record(GroupKey(GROUP), GroupValue(max(epoch, value.group_epoch), value.order, value.empty_since_ms))
    alone.take(Decision(batches=((*rows, group, last),)))
