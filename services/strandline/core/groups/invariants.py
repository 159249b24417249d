"""I28 and I29, checked on every decision against a model of its own that is built from the rows alone.

For tests and the simulator: nothing here uses how `Group` keeps its state, so a mistake there is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.coordinator.machine import Batch, Record
from strandline.core.groups import records
from strandline.core.groups.messages import OffsetCommit, TransactionMarked, TxnOffsetCommit
from strandline.core.types import TopicPartition

_Held = dict[TopicPartition, int]
"""Partition to the member epoch in which the member was first seen to hold it."""


class GroupInvariants:
    """Watches the rows of one coordinator partition, or of a whole cluster, for group ids are unique in it.

    Every method that finds an invariant broken raises an AssertionError that names it.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], _Held] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}
        self._group_epochs: dict[str, int] = {}
        self._members: dict[str, set[str]] = {}
        self._offsets: dict[tuple[str, TopicPartition], records.OffsetValue] = {}
        self._staged: dict[records.StagedOffsetKey, records.StagedOffsetValue] = {}

    def decided(self, request: object | None, batches: Iterable[Batch]) -> None:
        """A request, or with None the passing of time, led to these batches; they are applied now."""
        for batch in batches:
            for record in batch:
                if isinstance(record.key, records.OffsetKey):
                    self._check_offset(request, record)
                elif isinstance(record.key, records.StagedOffsetKey):
                    self._check_staged(request, record)
            for record in batch:
                self._fold(record)
            if request is None:
                self._check_expired(batch)
            for group_id in {
                record.key.group_id for record in batch if isinstance(record.key, records.CurrentKey | records.GroupKey)
            }:
                self._check_members(group_id)

    def written_before(self, record: Record) -> None:
        """A row was read while a log was loaded, or written again by a sweep. Of partitions that were not seen before
        it is believed, for a sweep leaves only the newest row of a member."""
        key, value = record
        if isinstance(key, records.CurrentKey) and isinstance(value, records.CurrentValue):
            held = self._held.setdefault((key.group_id, key.member_id), {})
            for tp, epoch in value.held:
                held.setdefault(tp, epoch)
        self._fold(record)

    def _check_expired(self, batch: Batch) -> None:
        gone = {
            (each.key.group_id, each.key.tp)
            for each in batch
            if isinstance(each.key, records.OffsetKey) and not each.value
        }
        staged = {(key.group_id, key.tp) for key in self._staged} if gone else set()
        assert not gone & staged, f"I29: {gone & staged} went while a transaction was open that may be aborted"

    def _check_offset(self, request: object | None, record: Record) -> None:
        key, value = record
        assert isinstance(key, records.OffsetKey)
        if value is None:
            return
        assert isinstance(value, records.OffsetValue)
        known = self._offsets.get((key.group_id, key.tp))
        assert known is None or known.order < value.order, f"I30: the order of {key} went from {known} to {value}"
        if isinstance(request, TransactionMarked):
            self._check_promoted(request, key, value)
            return
        assert isinstance(request, OffsetCommit), f"I29: {key} was written by {request!r}"
        self._check_committer(request, key)

    def _check_promoted(self, request: TransactionMarked, key: records.OffsetKey, value: records.OffsetValue) -> None:
        assert request.marker.committed, f"I29: {key} was committed by the abort of {request.producer}"
        staged = self._staged.get(
            records.StagedOffsetKey(key.group_id, key.topic_id, key.partition, request.producer.producer_id)
        )
        assert staged is not None, f"I29: {key} was committed by a marker of {request.producer}, who staged nothing"
        assert staged.offset == value, f"I29: {key} was staged as {staged.offset} and committed as {value}"
        assert staged.producer_epoch < request.producer.producer_epoch, (
            f"X16: {key} was staged in epoch {staged.producer_epoch} and committed by the marker {request.producer}"
        )

    def _check_staged(self, request: object | None, record: Record) -> None:
        key, value = record
        assert isinstance(key, records.StagedOffsetKey)
        if value is not None:
            assert isinstance(request, TxnOffsetCommit), f"I29: {key} was staged by {request!r}"
            self._check_committer(request, key)

    def _check_committer(
        self, request: OffsetCommit | TxnOffsetCommit, key: records.OffsetKey | records.StagedOffsetKey
    ) -> None:
        if request.member_epoch is None:
            members = self._members.get(key.group_id)
            assert not members, f"I29: {key} was committed without a member, and the group has {members}"
            return
        member = (key.group_id, request.member_id)
        since = self._held.get(member, {}).get(key.tp)
        epoch = self._member_epochs.get(member, -1)
        assert since is not None and since <= request.member_epoch <= epoch, (
            f"I29: {key} was committed by {request.member_id} in epoch {request.member_epoch}; it has held the "
            f"partition since epoch {since}, and its epoch is {epoch}"
        )

    def _fold(self, record: Record) -> None:
        key, value = record
        if isinstance(key, records.CurrentKey):
            assert value is None or isinstance(value, records.CurrentValue)
            self._fold_current((key.group_id, key.member_id), value)
        elif isinstance(key, records.MemberKey):
            members = self._members.setdefault(key.group_id, set())
            (members.discard if value is None else members.add)(key.member_id)
        elif isinstance(key, records.OffsetKey):
            if isinstance(value, records.OffsetValue):
                self._offsets[key.group_id, key.tp] = value
            else:
                self._offsets.pop((key.group_id, key.tp), None)
        elif isinstance(key, records.StagedOffsetKey):
            if isinstance(value, records.StagedOffsetValue):
                self._staged[key] = value
            else:
                self._staged.pop(key, None)
        elif isinstance(key, records.GroupKey):
            if isinstance(value, records.GroupValue):
                before = self._group_epochs.get(key.group_id, 0)
                assert value.group_epoch >= before, f"I28: group epoch of {key.group_id} went back from {before}"
                self._group_epochs[key.group_id] = value.group_epoch
            else:
                self._group_epochs.pop(key.group_id, None)

    def _fold_current(self, member: tuple[str, str], value: records.CurrentValue | None) -> None:
        before = self._held.pop(member, {})
        epoch = self._member_epochs.pop(member, 0)
        if value is None:
            return
        assert value.member_epoch >= epoch, f"I28: the epoch of {member} went from {epoch} to {value.member_epoch}"
        self._member_epochs[member] = value.member_epoch
        self._held[member] = {tp: before.get(tp, value.member_epoch) for tp, _ in value.held}

    def _check_members(self, group_id: str) -> None:
        group_epoch = self._group_epochs.get(group_id, 0)
        owner: dict[TopicPartition, str] = {}
        for (of_group, member_id), held in self._held.items():
            if of_group != group_id:
                continue
            epoch = self._member_epochs[of_group, member_id]
            assert epoch <= group_epoch, f"I28: {member_id} is in epoch {epoch}, its group in {group_epoch}"
            for tp in held:
                assert tp not in owner, f"I28: {tp} is held by {owner[tp]} and {member_id}"
                owner[tp] = member_id
