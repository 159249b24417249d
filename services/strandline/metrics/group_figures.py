"""What a scrape shows of the groups that this node coordinates: what is there now, and what looks in between counted.

A look remembers each group's epoch; a rebalance lasts from a look that finds a higher one until a look that finds the
group settled. So what begins and ends is late by one interval between looks at most.

Invariant: reads only, and no label has a group's name. A look costs a tenth of a microsecond for each group that is as
it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core.coordinator.shard import Shard, ShardState
from strandline.core.groups.group import Group, GroupState
from strandline.core.groups.happenings import Cause, cause_of_epoch
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import GroupValue
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, Histogram, Tally

REBALANCE_BOUNDS_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SETTLED = frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD})
_SHOWN = tuple(state for state in GroupState if state is not GroupState.DEAD)


class _SeenGroup(NamedTuple):
    value: GroupValue | None
    epoch: int
    n_members: int
    since_ms: int | None
    """Since when it rebalances."""


_NEW = _SeenGroup(None, 0, 0, None)


@dataclass(slots=True)
class _SeenShard:
    since_ms: int
    is_served: bool = False
    groups: dict[str, _SeenGroup] = field(default_factory=dict)


class GroupLooks:
    """What one node's groups did since its process began."""

    def __init__(self) -> None:
        self._shards: dict[tuple[TopicPartition, LeaderEpoch], _SeenShard] = {}
        self._rebalances = Tally(f.GROUP_REBALANCES, Cause.JOIN, Cause.LEAVE, Cause.INTEREST)
        self._durations = Histogram(REBALANCE_BOUNDS_S)
        self._loads = Histogram()

    def look(self, shards: Collection[Shard], now_ms: int) -> None:
        """Look at every shard; one that is not led any more is forgotten."""
        before, self._shards = self._shards, {}
        for shard in shards:
            key = (shard.leader.log.tp, shard.leader.image.leader_epoch)
            seen = self._shards[key] = before.get(key) or _SeenShard(now_ms)
            if shard.state is not ShardState.ACTIVE or not isinstance(shard.machine, GroupMachine):
                continue
            groups = shard.machine.groups
            if seen.is_served:
                self._compare(seen.groups, groups, now_ms)
                continue
            seen.is_served = True
            self._loads.observe((now_ms - seen.since_ms) / 1_000)
            # What rebalances here already was begun, and counted, at the coordinator before this one.
            seen.groups = {name: _as_loaded(group, now_ms) for name, group in groups.items() if group.epoch}

    def _compare(self, seen: dict[str, _SeenGroup], groups: dict[str, Group], now_ms: int) -> None:
        for name, group in groups.items():
            was = seen.get(name, _NEW)
            if group.value is was.value and was.since_ms is None:
                continue
            since_ms = was.since_ms
            if group.epoch > was.epoch and since_ms is None:
                self._rebalances.add(cause_of_epoch(was.n_members, len(group.members)))
                since_ms = now_ms
            if since_ms is not None and group.state in _SETTLED:
                self._durations.observe((now_ms - since_ms) / 1_000)
                since_ms = None
            seen[name] = _SeenGroup(group.value, group.epoch, len(group.members), since_ms)
        if len(seen) > len(groups):
            for name in seen.keys() - groups.keys():
                del seen[name]

    def figures(self, shards: Collection[Shard], now_ms: int) -> Iterator[Figure]:
        """The present values."""
        groups = [group for shard in shards if shard.is_serving for group in _groups_of(shard)]
        by_state = Counter(group.state for group in groups)
        yield from (Figure(f.GROUPS, by_state[state], (state.lower(),)) for state in _SHOWN)
        yield Figure(f.GROUP_MEMBERS, sum(len(group.members) for group in groups))
        yield from self._rebalances.figures()
        yield Figure(f.GROUP_REBALANCE, self._durations.spread())
        yield Figure(f.OLDEST_REBALANCE, self._oldest_s(now_ms))
        yield Figure(f.COORDINATOR_LOAD, self._loads.spread())
        of_shards = Counter(shard.state for shard in shards)
        yield from (Figure(f.COORDINATOR_SHARDS, of_shards[state], (state,)) for state in ShardState)

    def _oldest_s(self, now_ms: int) -> float:
        since = [one.since_ms for shard in self._shards.values() for one in shard.groups.values()]
        return max((now_ms - since_ms for since_ms in since if since_ms is not None), default=0) / 1_000


def _groups_of(shard: Shard) -> Collection[Group]:
    return shard.machine.groups.values() if isinstance(shard.machine, GroupMachine) else ()


def _as_loaded(group: Group, now_ms: int) -> _SeenGroup:
    since_ms = None if group.state in _SETTLED else now_ms
    return _SeenGroup(group.value, group.epoch, len(group.members), since_ms)
