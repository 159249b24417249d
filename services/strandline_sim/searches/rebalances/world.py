"""A group of two members as values: its rows at the coordinator, and what each client holds and has sent.

Invariant: a world is hashable and complete; two worlds that are equal have the same future.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import NamedTuple

from strandline.core.coordinator.machine import Batch, Context, Key, Record, TopicEntry
from strandline.core.errors import Refusal
from strandline.core.groups import records
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.heartbeats import HeartbeatParts, heartbeat
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings, HeartbeatAnswered
from strandline.core.groups.targets import Subscriptions
from strandline.core.groups.timers import Timers
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.runtime.patterns import Re2Patterns

GROUP = "g"
MEMBERS = ("m1", "m2")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
KEYS: tuple[Key, ...] = (
    records.GroupKey(GROUP),
    records.TargetEpochKey(GROUP),
    *(kind(GROUP, member) for member in MEMBERS for kind in (records.MemberKey, records.TargetKey, records.CurrentKey)),
)
"""Every key that this group can have a row of."""

Rows = tuple[object | None, ...]
"""The value of each key, in the order of `KEYS`."""
Set = frozenset[TopicPartition]


class Sent(NamedTuple):
    """A heartbeat."""

    epoch: int
    owned: Set | None


class MemberClient(NamedTuple):
    """What one member knows. It reads the partitions in ``reads``, and reports those of ``revoking`` until it is done
    with them."""

    epoch: int
    reads: Set
    revoking: Set = frozenset()
    out: Sent | None = None
    """The heartbeat whose answer it waits for."""
    is_taken: bool = False
    """Whether a copy of that was decided, and its answer lost."""
    late: Sent | None = None
    """An earlier one that the network still holds; nothing sent after it was taken."""


class RebalanceWorld(NamedTuple):
    """One state."""

    rows: Rows
    clients: tuple[MemberClient, MemberClient]
    restarts: int = 0


class OneTopic:
    """The topics of this cluster (`TopicDirectory`)."""

    version = 1
    _entry = TopicEntry("t", "t", (frozenset(),) * len(PARTITIONS))

    def by_name(self, name: str) -> TopicEntry | None:
        """The one topic, by its name."""
        return self._entry if name == "t" else None

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """The one topic, by its id."""
        return self.by_name(topic_id)

    def names(self) -> tuple[str, ...]:
        """Its name."""
        return ("t",)


# Targets are set by the search, never by an assignor: nothing is computed at once after the first member.
_SETTINGS = GroupSettings(assignment_interval_ms=1)
_PARTS = HeartbeatParts(Timers(1), _SETTINGS, Subscriptions(Re2Patterns(), 1_024))
_CONTEXT = Context(0, 0, LeaderEpoch(0), OneTopic())


def group_of(rows: Rows) -> Group:
    """The group that these rows are. Raises an AssertionError that names I28 where they contradict each other."""
    group = Group(GROUP)
    for key, value in zip(KEYS, rows, strict=True):
        if value is not None:
            group.apply(Record(key, value))
    return group


def with_batch(rows: Rows, batch: Batch) -> Rows:
    """The rows after a batch, applied record by record to a group, as a shard does it."""
    group = group_of(rows)
    values = dict(zip(KEYS, rows, strict=True))
    for record in batch:
        group.apply(record)
        values[record.key] = record.value
    return tuple(values[key] for key in KEYS)


@cache
def decided(rows: Rows, member: str, sent: Sent) -> tuple[Rows, HeartbeatAnswered | Refusal]:
    """What the coordinator makes of a heartbeat."""
    joins = sent.epoch == 0
    request = ConsumerGroupHeartbeat(
        group_id=GROUP,
        member_id=member,
        member_epoch=sent.epoch,
        topic_partitions=None if sent.owned is None else tuple(sorted(sent.owned)),
        subscribed_topic_names=("t",) if joins else None,
        rebalance_timeout_ms=1 if joins else None,
    )
    decision = heartbeat(group_of(rows), request, _CONTEXT, _PARTS)
    for batch in decision.batches:
        rows = with_batch(rows, batch)
    assert isinstance(decision.answer, HeartbeatAnswered | Refusal)
    return rows, decision.answer


def changes_of(rows: Rows) -> Changes:
    """Begin a change that no request led to."""
    return Changes(group_of(rows), 0)


def start() -> RebalanceWorld:
    """The first member has all partitions, the second has none."""
    said = records.MemberValue(session_timeout_ms=45_000, rebalance_timeout_ms=1, topic_names=("t",))
    first = records.CurrentValue(
        1, 0, records.MemberState.STABLE, tuple(records.AssignedPartition(tp, 1) for tp in PARTITIONS)
    )
    rows: Rows = (
        records.GroupValue(1),
        records.TargetEpochValue(1, "uniform", 0),
        *(said, records.TargetValue(1, PARTITIONS), first),
        *(said, records.TargetValue(1, ()), records.CurrentValue(1, 0, records.MemberState.STABLE)),
    )
    return RebalanceWorld(rows, (MemberClient(1, frozenset(PARTITIONS)), MemberClient(1, frozenset())))


# ---- symmetry
# Partitions are alike: a world and the one in which they have exchanged their numbers have the same future.

Exchange = dict[TopicPartition, TopicPartition]


def exchanges(moved: int) -> tuple[Exchange, ...]:
    """All ways to exchange the first ``moved`` partitions; the first way leaves them."""
    fixed = {tp: tp for tp in PARTITIONS[moved:]}
    return tuple(fixed | dict(zip(PARTITIONS, order, strict=False)) for order in permutations(PARTITIONS[:moved]))


def exchanged_rows(rows: Rows, how: Exchange) -> Rows:
    """The rows with their partitions exchanged."""
    return tuple(_value(value, how) for value in rows)


def _value(value: object, how: Exchange) -> object:
    if isinstance(value, records.TargetValue):
        return replace(value, partitions=tuple(sorted(how[tp] for tp in value.partitions)))
    if isinstance(value, records.CurrentValue):
        return replace(value, assigned=_assigned(value.assigned, how), revoking=_assigned(value.revoking, how))
    return value


def _assigned(held: tuple[records.AssignedPartition, ...], how: Exchange) -> tuple[records.AssignedPartition, ...]:
    return tuple(sorted(records.AssignedPartition(how[tp], epoch) for tp, epoch in held))


def exchanged_client(client: MemberClient, how: Exchange) -> MemberClient:
    """The client with its partitions exchanged."""
    return client._replace(
        reads=frozenset(how[tp] for tp in client.reads),
        revoking=frozenset(how[tp] for tp in client.revoking),
        out=_sent(client.out, how),
        late=_sent(client.late, how),
    )


def _sent(sent: Sent | None, how: Exchange) -> Sent | None:
    if sent is None or sent.owned is None:
        return sent
    return sent._replace(owned=frozenset(how[tp] for tp in sent.owned))
