"""Which state events a coordinator of groups reports: each change of a group and of a member, what they are once an
hour, and commits in samples.

Source of what a row carries: design rule G33.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.core.coordinator.machine import Context
from strandline.core.coordinator.reports import Reports
from strandline.core.groups.commit_samples import CommitSamples
from strandline.core.groups.group import Group
from strandline.core.groups.happenings import GroupChange, MemberChange
from strandline.core.groups.repetitions import Repetitions
from strandline.core.state_events import GroupChange as GroupChangeEvent
from strandline.core.state_events import MemberChange as MemberChangeEvent
from strandline.core.state_events import Number
from strandline.core.types import TopicPartition


class GroupReporting:
    """`GroupObserver` of one shard. Without ``samples`` groups and members are reported, and no commits."""

    def __init__(self, reports: Reports, *, samples: bool = True) -> None:
        self._reports = reports
        self._commits = CommitSamples(reports) if samples else None
        self._repetitions = Repetitions()

    def group_changed(self, change: GroupChange, now_ms: int) -> None:
        """A group changed."""
        event = GroupChangeEvent(
            group_id=change.group_id,
            old_state=str(change.old_state),
            new_state=str(change.new_state),
            group_epoch=Number(change.group_epoch),
            target_epoch=Number(change.target_epoch),
            n_members=Number(change.n_members),
            cause=str(change.cause),
            leader_epoch=self._reports.leader_epoch,
        )
        self._reports.add(event)

    def member_changed(self, change: MemberChange, now_ms: int) -> None:
        """A member changed."""
        event = MemberChangeEvent(
            group_id=change.group_id,
            member_id=change.member_id,
            instance_id=change.instance_id,
            rack=change.rack_id,
            phase=str(change.phase),
            member_epoch=None if change.member_epoch is None else Number(change.member_epoch),
            assigned=_named(change.assigned),
            revoking=_named(change.revoking),
            leader_epoch=self._reports.leader_epoch,
            cause=None if change.cause is None else str(change.cause),
        )
        self._reports.add(event)

    def committed(self, group_id: str, tp: TopicPartition) -> None:
        """An offset was committed, or what was committed is forgotten."""
        if self._commits is not None:
            self._commits.taken((group_id, tp))

    def commit_refused(self, group_id: str, tp: TopicPartition, error: str) -> None:
        """A commit was refused with the error of this name."""
        if self._commits is not None:
            self._commits.refused((group_id, tp), error)

    def ticked(self, groups: Mapping[str, Group], context: Context) -> None:
        """Time passed."""
        for row in self._repetitions.due(groups, context.unix_ms):
            if isinstance(row, GroupChange):
                self.group_changed(row, context.now_ms)
            else:
                self.member_changed(row, context.now_ms)
        if self._commits is not None:
            self._commits.ticked(groups, context.now_ms)


def _named(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{topic_id}:{partition}" for topic_id, partition in partitions)
