"""What the rules look at: removals by leaders with what the leader's log adds, sessions, silences, and settings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from strandline.core.types import TopicPartition
from strandline_kafka.metadata.skeleton import BrokerMoment, Registration, Removal, Return, Silence

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

CLOSE_MS = 1_000
"""Members that were last caught up within so long of each other fell behind at once."""


class RemovedReplica(NamedTuple):
    """One replica that a leader had removed, by the controller's clock."""

    removal: Removal
    caught_up_ms: int | None
    """When the leader last saw it caught up; None without the leader's log."""
    line: str | None
    """``node:file:line`` of the leader's log."""

    @property
    def pair(self) -> tuple[int, int]:
        """Leader and follower."""
        return self.removal.leader, self.removal.replica

    @property
    def evidence(self) -> tuple[str, ...]:
        """The record, and the line if there is one."""
        record = f"meta_offset {self.removal.meta_offset}"
        return (record,) if self.line is None else (record, self.line)


@dataclass(kw_only=True)
class Evidence:
    """Everything that a rule may look at. Times are ms since 1970 by the controller's clock."""

    removals: Sequence[RemovedReplica]
    """Removals in order of time."""
    returns: Sequence[Return] = ()
    fences: Sequence[BrokerMoment] = ()
    shutdowns: Sequence[BrokerMoment] = ()
    registrations: Sequence[Registration] = ()
    silences: Sequence[Silence] = ()
    lag_time_ms: int | None = None
    session_timeout_ms: int = 9_000
    heartbeat_ms: int = 2_000

    @property
    def fence_within_ms(self) -> int:
        """A node that stopped is fenced after at most so long: its session, and two heartbeats."""
        return self.session_timeout_ms + 2 * self.heartbeat_ms

    @cached_property
    def by_replica(self) -> dict[int, list[RemovedReplica]]:
        """The removals of each node, by id."""
        return _grouped(self.removals, lambda one: one.removal.replica)

    @cached_property
    def by_pair(self) -> dict[tuple[int, int], list[RemovedReplica]]:
        """The removals of each leader and follower."""
        return _grouped(self.removals, lambda one: one.pair)

    def around(self, from_ms: int, to_ms: int) -> Sequence[RemovedReplica]:
        """The removals that were decided in [from_ms, to_ms]."""
        return self.removals[bisect_left(self._times, from_ms) : bisect_right(self._times, to_ms)]

    def fence_of(self, node: int, from_ms: int, to_ms: int) -> BrokerMoment | None:
        """The first fence of a node in [from_ms, to_ms]."""
        return next((one for one in self._fences.get(node, ()) if from_ms <= one.at_ms <= to_ms), None)

    def shutdown_of(self, node: int, from_ms: int, to_ms: int) -> BrokerMoment | None:
        """The first controlled shutdown of a node in [from_ms, to_ms]."""
        return next((one for one in self._shutdowns.get(node, ()) if from_ms <= one.at_ms <= to_ms), None)

    def returned_ms(self, seen: RemovedReplica) -> int | None:
        """When a removed replica came back."""
        times = self._returns.get((seen.removal.tp, seen.removal.replica), [])
        place = bisect_left(times, seen.removal.at_ms)
        return times[place] if place < len(times) else None

    @cached_property
    def _times(self) -> list[int]:
        return [one.removal.at_ms for one in self.removals]

    @cached_property
    def _fences(self) -> dict[int, list[BrokerMoment]]:
        return _grouped(self.fences, lambda one: one.node)

    @cached_property
    def _shutdowns(self) -> dict[int, list[BrokerMoment]]:
        return _grouped(self.shutdowns, lambda one: one.node)

    @cached_property
    def _returns(self) -> dict[tuple[TopicPartition, int], list[int]]:
        found = _grouped(self.returns, lambda one: (one.tp, int(one.replica)))
        return {key: [one.at_ms for one in several] for key, several in found.items()}


def _grouped(several: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for one in several:
        found.setdefault(key(one), []).append(one)
    return dict(sorted(found.items(), key=lambda pair: str(pair[0])))


class Finding(NamedTuple):
    """What a rule says of some removals, or of one registration."""

    rule: str
    subject: str
    says: str
    contradiction: str
    """What would refute it, if it were seen."""
    evidence: tuple[str, ...]
    explains: tuple[int, ...]
    """Offsets in the metadata log of what it is about."""
    is_beside: bool = False
    """Whether it says something about the record itself, so that it competes with no other rule."""


def groups_by_moment(removals: Iterable[RemovedReplica]) -> list[list[RemovedReplica]]:
    """Removals whose members were last caught up within `CLOSE_MS` of the first of them."""
    known = sorted(
        (one for one in removals if one.caught_up_ms is not None),
        key=lambda one: (one.caught_up_ms, one.removal.meta_offset),
    )
    groups: list[list[RemovedReplica]] = []
    for one in known:
        if groups and (one.caught_up_ms or 0) - (groups[-1][0].caught_up_ms or 0) <= CLOSE_MS:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def evidence_of(removals: Iterable[RemovedReplica], *more: str) -> tuple[str, ...]:
    """The evidence of several removals, each thing once."""
    return tuple(dict.fromkeys((*(said for one in removals for said in one.evidence), *more)))


def offsets_of(removals: Iterable[RemovedReplica]) -> tuple[int, ...]:
    """What a finding about these removals explains."""
    return tuple(one.removal.meta_offset for one in removals)
