"""When a coordinator says again what its groups and members are: once it serves, and at the start of each hour.

A group may be calm for weeks, and a reader of one day's events has to know it all the same. The hour is that of the
wall clock: files are by hour, and the controller repeats the state of its partitions then, too.

Invariant: a repetition says what is applied at the moment at which it is reported. One tick reports a bounded part of
it, for ten thousand groups, or a thousand members, at once would hold heartbeats up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.core.groups.group import Group
from strandline.core.groups.happenings import Cause, GroupChange, MemberChange, member_now

HOUR_MS = 3_600_000
PARTS_PER_TICK = 64
"""What one tick reports at most, counted in rows and in the partitions that they name; the last row may exceed it. A
node has up to twelve shards with 20 ticks a second: 15,000 rows a second leave room for others in the export."""

_Key = tuple[str, str | None]


class Repetitions:
    """Of the groups of one shard."""

    def __init__(self) -> None:
        self._left: Iterator[_Key] = iter(())
        self._hour: int | None = None

    def due(self, groups: Mapping[str, Group], unix_ms: int) -> Iterator[GroupChange | MemberChange]:
        """What this tick has to report; of each group its members first. What goes meanwhile is left out."""
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
        """Begin again if an hour has begun since; only when all of the last time is reported."""
        hour = unix_ms // HOUR_MS
        if hour == self._hour:
            return False
        self._hour, self._left = hour, _keys(groups)
        return True


def _keys(groups: Mapping[str, Group]) -> Iterator[_Key]:
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
