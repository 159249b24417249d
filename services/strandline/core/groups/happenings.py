"""Changes of groups as observers see them: one value for each change of a group and of a member (G33).

Invariant: observers see a batch as a whole, never a state between two of its rows, and nothing while a log is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from strandline.core import state_events
from strandline.core.coordinator.machine import Context
from strandline.core.groups.group import Group, GroupState
from strandline.core.groups.records import CurrentValue, MemberState
from strandline.core.types import TopicPartition


class Cause(StrEnum):
    """Why a group's state or epoch changed."""

    JOIN = "join"
    LEAVE = "leave"
    """A member left or its session ended."""
    FENCED = "fenced"
    """A member did not give up its partitions in time."""
    INTEREST = "interest"
    """A subscription, an assignor, a rack, or a subscribed topic changed."""
    TARGET = "target"
    """A target was computed."""
    RECONCILED = "reconciled"
    """Members moved towards their targets."""
    REPEATED = state_events.REPEATED
    """No change: the state is reported again for readers that begin later."""


class Phase(StrEnum):
    """What happened to a member."""

    JOINED = "joined"
    ASSIGNED = "assigned"
    """Its partitions or epoch changed, and it has nothing to give up."""
    REVOKING = "revoking"
    AWAY = "away"
    FENCED = "fenced"
    GONE = "gone"


class GroupChange(NamedTuple):
    """A change of a group's state or epoch."""

    group_id: str
    old_state: GroupState
    new_state: GroupState
    group_epoch: int
    target_epoch: int
    n_members: int
    cause: Cause


class MemberChange(NamedTuple):
    """A change of a member's row."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    phase: Phase
    member_epoch: int | None
    """None for a member that has left."""
    assigned: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    cause: Cause | None = None
    """REPEATED if the row has not changed; None if ``phase`` says why it has."""


class GroupObserver(Protocol):
    """Called with changes after they were applied; it must change nothing."""

    def group_changed(self, change: GroupChange, now_ms: int) -> None:
        """A group changed."""
        ...

    def member_changed(self, change: MemberChange, now_ms: int) -> None:
        """A member changed; called before the change of its group."""
        ...

    def committed(self, group_id: str, tp: TopicPartition) -> None:
        """An offset was committed, or a committed offset was deleted."""
        ...

    def commit_refused(self, group_id: str, tp: TopicPartition, error: str) -> None:
        """A commit for a partition was refused with the error of this name."""
        ...

    def ticked(self, groups: Mapping[str, Group], context: Context) -> None:
        """Time passed; ``groups`` are all groups of the shard."""
        ...


class _Before(NamedTuple):
    state: GroupState
    epoch: int
    target_epoch: int
    n_members: int


class Happenings:
    """Remembers the state of groups before the rows that were not reported yet."""

    def __init__(self, observer: GroupObserver) -> None:
        self._observer = observer
        self._groups: dict[str, _Before] = {}
        self._members: dict[tuple[str, str], CurrentValue | None] = {}

    def about_to_change(self, group: Group, member_id: str | None) -> None:
        """A row of ``group`` will be applied next; ``member_id`` is set if it is that member's current row."""
        if group.group_id not in self._groups:
            before = _Before(group.state, group.epoch, group.target_epoch, len(group.members))
            self._groups[group.group_id] = before
        if member_id is not None:
            self._members.setdefault((group.group_id, member_id), group.current.get(member_id))

    def show(self, group: Group, now_ms: int) -> None:
        """Report how ``group`` has changed since; nothing if it has not."""
        before = self._groups.pop(group.group_id, None)
        if before is None:
            return
        fenced = False
        for key in [key for key in self._members if key[0] == group.group_id]:
            change = _member_change(group, key[1], self._members.pop(key))
            if change is not None:
                fenced = fenced or change.phase is Phase.FENCED
                self._observer.member_changed(change, now_ms)
        after = _Before(group.state, group.epoch, group.target_epoch, len(group.members))
        if after[:3] != before[:3]:
            cause = Cause.FENCED if fenced else _cause(before, after)
            change_of_group = GroupChange(
                group.group_id, before.state, after.state, after.epoch, after.target_epoch, after.n_members, cause
            )
            self._observer.group_changed(change_of_group, now_ms)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups with rows that were not reported yet."""
        return tuple(self._groups)


def _cause_of_epoch(members_before: int, members_after: int) -> Cause:
    """Why a group has a higher epoch, by the number of its members."""
    if members_after == members_before:
        return Cause.INTEREST
    return Cause.JOIN if members_after > members_before else Cause.LEAVE


def _cause(before: _Before, after: _Before) -> Cause:
    if after.n_members == before.n_members:
        if after.target_epoch != before.target_epoch:
            return Cause.TARGET
        if after.epoch == before.epoch:
            return Cause.RECONCILED
    return _cause_of_epoch(before.n_members, after.n_members)


def _member_change(group: Group, member_id: str, before: CurrentValue | None) -> MemberChange | None:
    return None if group.current.get(member_id) == before else member_now(group, member_id, before)


def member_now(group: Group, member_id: str, before: CurrentValue | None) -> MemberChange:
    """The change of a member from ``before`` to its current row."""
    row = group.current.get(member_id)
    said = group.members.get(member_id)
    return MemberChange(
        group.group_id,
        member_id,
        said.instance_id if said else None,
        said.rack_id if said else None,
        _phase(before, row),
        row.member_epoch if row else None,
        tuple(each.tp for each in row.assigned) if row else (),
        tuple(each.tp for each in row.revoking) if row else (),
    )


def _phase(before: CurrentValue | None, row: CurrentValue | None) -> Phase:
    if row is None:
        return Phase.GONE
    named = {
        MemberState.FENCED: Phase.FENCED,
        MemberState.AWAY: Phase.AWAY,
        MemberState.UNREVOKED: Phase.REVOKING,
    }
    if row.state in named:
        return named[row.state]
    return Phase.JOINED if before is None or before.state is MemberState.FENCED else Phase.ASSIGNED
