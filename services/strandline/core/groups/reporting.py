"""The state events of a group coordinator: each change of a group and of a member, their state once an hour, and
samples of commits.

Source of what a row carries: design rule G33.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from strandline.core.coordinator.machine import Context, Reports
from strandline.core.groups.group import Group
from strandline.core.groups.happenings import Cause, GroupChange, MemberChange, member_now
from strandline.core.groups.records import OffsetValue
from strandline.core.state_events import (
    GroupChange as GroupChangeEvent,
    GroupOffsets,
    MemberChange as MemberChangeEvent,
    Number,
)
from strandline.core.types import TopicPartition

# ---- repetitions
# Repeats the state of groups and members when a coordinator starts to serve, and at the start of each hour.
#
# A group may not change for weeks, but a reader of one day's events has to know it. The hour is that of the wall
# clock: files are by hour, and the controller repeats the state of its partitions then, too.
#
# Invariant: a repetition has the state at the moment of its report. One tick reports a bounded part of it, because ten
# thousand groups or a thousand members at once would delay heartbeats.

HOUR_MS = 3_600_000
PARTS_PER_TICK = 64
"""What one tick reports at most, counted in rows and in the partitions that they name; the last row may exceed it. A
node has up to twelve shards with 20 ticks a second: 15,000 rows a second leave room for others in the export."""

_RepetitionsKey = tuple[str, str | None]


class Repetitions:
    """Of the groups of one shard."""

    def __init__(self) -> None:
        self._left: Iterator[_RepetitionsKey] = iter(())
        self._hour: int | None = None

    def due(self, groups: Mapping[str, Group], unix_ms: int) -> Iterator[GroupChange | MemberChange]:
        """What this tick has to report, each group after its members; what was removed meanwhile is left out."""
        parts = 0
        while parts < PARTS_PER_TICK:
            key = next(self._left, None)
            if key is None and not self._begins(groups, unix_ms):
                return
            row = _row(groups, *key) if key else None
            if row is not None:
                parts += _parts(row)
                yield row

    def _begins(self, groups: Mapping[str, Group], unix_ms: int) -> bool:
        """Start again if an hour has begun since, but only after the previous repetition is complete."""
        hour = unix_ms // HOUR_MS
        if hour == self._hour:
            return False
        self._hour, self._left = hour, _keys(groups)
        return True


def _keys(groups: Mapping[str, Group]) -> Iterator[_RepetitionsKey]:
    for group_id in tuple(groups):
        group = groups.get(group_id)
        if group is not None:
            yield from ((group_id, member_id) for member_id in tuple(group.current))
            yield group_id, None


def _row(groups: Mapping[str, Group], group_id: str, member_id: str | None) -> GroupChange | MemberChange | None:
    group = groups.get(group_id)
    if group is None or (member_id is not None and member_id not in group.current):
        return None
    if member_id is not None:
        return member_now(group, member_id, group.current[member_id])._replace(cause=Cause.REPEATED)
    state = group.state
    return GroupChange(group_id, state, state, group.epoch, group.target_epoch, len(group.members), Cause.REPEATED)


def _parts(row: GroupChange | MemberChange) -> int:
    return 1 + (len(row.assigned) + len(row.revoking) if isinstance(row, MemberChange) else 0)


# ---- commit_samples
# When a coordinator reports what is committed: keys with commits once an interval, every key once a minute (G33).
#
# Every key is reported once a minute, so that a later reader still knows a group that has stopped committing. A tick
# reports few keys: a hundred thousand at once would block the event loop.
#
# Invariant: memory is bounded by `MOST_OPEN_KEYS`. Commits of further keys are not counted, but their offsets are still
# reported once a minute.

OPEN_EVERY_MS = 1_000
"""How often a key with commits is reported at most."""
LOOK_EVERY_MS = 60_000
"""How often every key is reported at least, as far as `KEYS_PER_TICK` allows."""
KEYS_PER_TICK = 256
MOST_OPEN_KEYS = 10_000

_Key = tuple[str, TopicPartition]


class _Counted:
    __slots__ = ("errors", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.errors: dict[str, int] = {}


class CommitSamples:
    """Of the groups of one shard."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._open: dict[_Key, _Counted] = {}
        self._due: Iterator[_Key] = iter(())
        self._next_open_ms = 0
        self._next_look_ms = 0

    def taken(self, key: _Key) -> None:
        """An offset was committed for ``key``, or a committed offset was deleted."""
        counted = self._counted(key)
        if counted is not None:
            counted.taken += 1

    def refused(self, key: _Key, error: str) -> None:
        """A commit of ``key`` was refused with the error of this name."""
        counted = self._counted(key)
        if counted is not None:
            counted.errors[error] = counted.errors.get(error, 0) + 1

    def _counted(self, key: _Key) -> _Counted | None:
        if key not in self._open and len(self._open) >= MOST_OPEN_KEYS:
            return None
        return self._open.setdefault(key, _Counted())

    def ticked(self, groups: Mapping[str, Group], now_ms: int) -> None:
        """Report some of the keys that are due; the next ones follow once all of these are reported."""
        for _ in range(KEYS_PER_TICK):
            key = next(self._due, None)
            if key is None:
                self._due = self._next_keys(groups, now_ms)
                return
            self._report(key, groups)

    def _next_keys(self, groups: Mapping[str, Group], now_ms: int) -> Iterator[_Key]:
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_EVERY_MS
            self._next_open_ms = now_ms + OPEN_EVERY_MS
            return self._every_key(groups)
        if self._open and now_ms >= self._next_open_ms:
            self._next_open_ms = now_ms + OPEN_EVERY_MS
            return iter(tuple(self._open))
        return iter(())

    def _every_key(self, groups: Mapping[str, Group]) -> Iterator[_Key]:
        """Every key with an offset, then those whose offset is forgotten or was never taken. It ends many ticks later:
        groups that go meanwhile are left out."""
        for group_id in tuple(groups):
            group = groups.get(group_id)
            if group is not None:
                yield from [(group_id, tp) for tp, _ in group.offset_rows()]
        yield from tuple(self._open)

    def _report(self, key: _Key, groups: Mapping[str, Group]) -> None:
        group_id, tp = key
        group, counted = groups.get(group_id), self._open.pop(key, None) or _Counted()
        value = _value(group, tp)
        event = GroupOffsets(
            group_id=group_id,
            committed=value.offset if value else None,
            commit_us=value.commit_ms * 1_000 if value else None,
            n_commits=counted.taken,
            n_error=counted.errors,
            coordinator_epoch=self._reports.leader_epoch,
        )
        self._reports.add(event, tp)


def _value(group: Group | None, tp: TopicPartition) -> OffsetValue | None:
    return group.offsets.get(tp.topic_id, {}).get(tp.partition) if group is not None else None


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
