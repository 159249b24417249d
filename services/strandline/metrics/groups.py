"""What a scrape shows of the groups that this node coordinates: their present state, and counts of reported events.

A rebalance lasts from the event after which a group is not settled until the event after which it is settled again; one
that settles with the same event has duration 0. A rebalance that an earlier coordinator began is not counted here, and
its age is that of its first report.

Invariant: no label has a group's name, and only rebalancing groups are remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from strandline.core.coordinator.shard import Shard, ShardState
from strandline.core.groups.group import GroupState
from strandline.core.groups.happenings import Cause
from strandline.core.groups.machine import GroupMachine
from strandline.core.state_events import CoordinatorLoad, GroupChange
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.records import TxnState
from strandline.core.types import LeaderEpoch
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, Histogram, Tally
from strandline.runtime.clock import monotonic_ms

REBALANCE_BOUNDS_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SETTLED = frozenset(map(str, (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)))
_SHOWN = tuple(state for state in GroupState if state is not GroupState.DEAD)
_BEGUN_BY = {Cause.JOIN: Cause.JOIN, Cause.LEAVE: Cause.LEAVE, Cause.FENCED: Cause.LEAVE}
"""The cause under which a rebalance is counted; any other cause counts as a change of interest."""
_RAISES_EPOCH = frozenset(map(str, (Cause.JOIN, Cause.LEAVE, Cause.FENCED, Cause.INTEREST)))


class _Rebalance(NamedTuple):
    epoch: LeaderEpoch
    """The epoch of the coordinator that reported it."""
    since_ms: int


class GroupCounts:
    """Counts the events of one node's groups since its process began; ``clock`` returns milliseconds."""

    def __init__(self, clock: Callable[[], int] = monotonic_ms) -> None:
        self._clock = clock
        self._open: dict[str, _Rebalance] = {}
        self._rebalances = Tally(f.GROUP_REBALANCES, Cause.JOIN, Cause.LEAVE, Cause.INTEREST)
        self._durations = Histogram(REBALANCE_BOUNDS_S)
        self._loads = Histogram()

    def loaded(self, load: CoordinatorLoad) -> None:
        """Count a coordinator that has loaded its state and serves now."""
        self._loads.observe(load.load_ms / 1_000)

    def changed(self, change: GroupChange) -> None:
        """Count a report of a group, which has changed or is repeated unchanged."""
        known = self._open.pop(change.group_id, None)
        if known is not None and known.epoch != change.leader_epoch:
            # It continued, and perhaps ended, at another coordinator.
            known = None
        now_ms = self._clock()
        was_settled, is_settled = change.old_state in _SETTLED, change.new_state in _SETTLED
        if was_settled and (not is_settled or (change.cause in _RAISES_EPOCH and change.new_state != GroupState.DEAD)):
            self._rebalances.add(_BEGUN_BY.get(Cause(change.cause), Cause.INTEREST))
            known = _Rebalance(change.leader_epoch, now_ms)
        if not is_settled:
            self._open[change.group_id] = known or _Rebalance(change.leader_epoch, now_ms)
        elif known is not None and change.cause != Cause.REPEATED:
            self._durations.observe((now_ms - known.since_ms) / 1_000)

    def figures(self, shards: Collection[Shard]) -> Iterator[Figure]:
        """The present values."""
        machines = [shard.machine for shard in shards if shard.is_serving]
        groups = [group for one in machines if isinstance(one, GroupMachine) for group in one.groups.values()]
        by_state = Counter(group.state for group in groups)
        yield from (Figure(f.GROUPS, by_state[state], (state.lower(),)) for state in _SHOWN)
        yield Figure(f.GROUP_MEMBERS, sum(len(group.members) for group in groups))
        yield from self._rebalances.figures()
        yield Figure(f.GROUP_REBALANCE, self._durations.spread())
        yield Figure(f.OLDEST_REBALANCE, self._oldest_s(shards))
        yield Figure(f.COORDINATOR_LOAD, self._loads.spread())
        of_shards = Counter(shard.state for shard in shards)
        yield from (Figure(f.COORDINATOR_SHARDS, of_shards[state], (state,)) for state in ShardState)

    def _oldest_s(self, shards: Collection[Shard]) -> float:
        """The age of the oldest rebalance that continues here, in s; the others are forgotten."""
        self._open = {name: one for name, one in self._open.items() if any(_has(shard, name, one) for shard in shards)}
        now_ms = self._clock()
        return max((now_ms - one.since_ms for one in self._open.values()), default=0) / 1_000


def _has(shard: Shard, group_id: str, rebalance: _Rebalance) -> bool:
    return (
        isinstance(shard.machine, GroupMachine)
        and shard.leader.image.leader_epoch == rebalance.epoch
        and group_id in shard.machine.groups
    )


# ---- transaction_figures
# What a scrape shows of the transactional ids that this node coordinates, by the state of their transactions.
#
# Invariant: no label has a transactional id, and nothing is remembered.


def transaction_figures(shards: Collection[Shard]) -> Iterator[Figure]:
    """The present values, for partitions that serve."""
    machines = [shard.machine for shard in shards if shard.is_serving]
    states = Counter(
        value.state for one in machines if isinstance(one, TransactionMachine) for value in one.ids.values()
    )
    yield from (Figure(f.TRANSACTIONAL_IDS, states[state], (_word(state),)) for state in TxnState)


def _word(state: TxnState) -> str:
    """`PrepareCommit` as `prepare_commit`, as labels are written."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in state).lstrip("_")
