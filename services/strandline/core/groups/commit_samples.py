"""When a coordinator reports what is committed: keys with commits once an interval, every key once a minute (G33).

Every key comes once a minute, so that a group that commits no more is still known to a later reader. A tick reports few
keys: a hundred thousand at once would hold the event loop.

Invariant: memory is bounded by `MOST_OPEN_KEYS`. Commits of further keys are not counted, and what is committed for
them is still reported once a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.core.coordinator.reports import Reports
from strandline.core.groups.group import Group
from strandline.core.groups.records import OffsetValue
from strandline.core.state_events import GroupOffsets
from strandline.core.types import TopicPartition

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
        """An offset was committed for ``key``, or what was committed is forgotten."""
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
