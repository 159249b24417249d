"""What a scrape of a data node reads from its core: gauges over every partition, at that moment.

Invariant: reads only. It is asked in the event loop, between two steps, and costs a few microseconds a partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.follower import FetchState
from strandline.core.leader import LeaderReplica
from strandline.core.node import NodeCore
from strandline.core.node_state import NodeState
from strandline.core.progress import FollowerProgress
from strandline.metrics import families as f
from strandline.metrics.figures import Figure
from strandline.metrics.held_back import HeldBack
from strandline.metrics.standing import StandingRecords


def node_figures(core: NodeCore, standing: StandingRecords, held: HeldBack, now_ms: int) -> Iterator[Figure]:
    """Everything but what is counted as it happens."""
    state = core.state
    leaders = list(state.leaders.values())
    yield Figure(f.PARTITIONS, len(state.logs))
    yield Figure(f.LED, len(leaders))
    yield Figure(f.UNDER_REPLICATED, sum(len(one.isr.committed) < len(one.image.replicas) for one in leaders))
    yield Figure(f.UNDER_MIN_ISR, sum(one.is_under_min_isr for one in leaders))
    yield Figure(f.AT_MIN_ISR, sum(len(one.isr.committed) == one.image.min_isr for one in leaders))
    yield Figure(f.FAILED_PARTITIONS, sum(one.state is FetchState.FAILED for one in state.followers.values()))
    yield Figure(f.REFUSED_CUTS, sum(one.refused_cut_to is not None for one in state.followers.values()))
    yield Figure(f.CONTROLLER_EPOCH, state.controller_epoch)
    if state.node_epoch is not None:
        yield Figure(f.NODE_EPOCH, state.node_epoch)
    yield Figure(f.HW_LAG_RECORDS, max((one.log.leo - one.log.hw for one in leaders), default=0))
    yield Figure(f.HW_LAG_SECONDS, standing.oldest_s((one.log for one in leaders), now_ms))
    yield Figure(f.LSO_LAG_RECORDS, max((one.log.hw - one.log.lso for one in leaders), default=0))
    yield Figure(f.LSO_HELD_SECONDS, held.longest_s((one.log for one in leaders), now_ms))
    yield from _waiting(core)
    yield from _lags(leaders, now_ms)


def _waiting(core: NodeCore) -> Iterator[Figure]:
    for kind, size, expired in zip(("produce", "fetch"), core.parked, core.expired, strict=True):
        yield Figure(f.PURGATORY_SIZE, size, (kind,))
        yield Figure(f.PURGATORY_EXPIRES, expired, (kind,))


def _lags(leaders: list[LeaderReplica], now_ms: int) -> Iterator[Figure]:
    records: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for leader in leaders:
        for follower in leader.progress.values():
            name = str(follower.node_id)
            records[name] = max(records.get(name, 0), lag_records(leader, follower))
            behind_s = _lag_s(leader, follower, now_ms)
            if behind_s is not None:
                seconds[name] = max(seconds.get(name, 0), behind_s)
    yield from (Figure(f.REPLICA_LAG_RECORDS, lag, (name,)) for name, lag in records.items())
    yield from (Figure(f.REPLICA_LAG_SECONDS, lag, (name,)) for name, lag in seconds.items())


def lag_records(leader: LeaderReplica, follower: FollowerProgress) -> int:
    """What a follower lacks. One that has not fetched in this epoch lacks at least what the epoch brought."""
    have = leader.epoch_start_offset if follower.remote_leo is None else follower.remote_leo
    return max(0, leader.log.leo - have)


def _lag_s(leader: LeaderReplica, follower: FollowerProgress, now_ms: int) -> float | None:
    """None for one that was not caught up in this epoch: nobody here knows since when."""
    if follower.last_caught_up_ms is None:
        return None
    if follower.remote_leo == leader.log.leo:
        return 0.0
    return max(0, now_ms - follower.last_caught_up_ms) / 1000


def partition_figures(state: NodeState) -> Iterator[Figure]:
    """One series for each partition and, of led ones, for each follower; only where a setting asks for it."""
    for log in state.logs.values():
        labels = (log.topic, str(log.tp.partition))
        yield Figure(f.LOG_END_OFFSET, log.leo, labels)
        yield Figure(f.HIGH_WATERMARK, log.hw, labels)
        yield Figure(f.LOG_START_OFFSET, log.log_start_offset, labels)
    for leader in state.leaders.values():
        labels = (leader.log.topic, str(leader.log.tp.partition))
        yield Figure(f.LAST_STABLE_OFFSET, leader.log.lso, labels)
        yield Figure(f.PARTITION_HW_LAG, leader.log.leo - leader.log.hw, labels)
        yield Figure(f.PARTITION_ISR, len(leader.isr.committed), labels)
        for follower in leader.progress.values():
            lag = lag_records(leader, follower)
            yield Figure(f.PARTITION_REPLICA_LAG, lag, (*labels, str(follower.node_id)))
