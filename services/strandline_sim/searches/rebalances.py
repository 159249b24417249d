"""Exhaustive search of rebalances: two members, three partitions, every order of arrivals (G17 to G19).

The production core decides each heartbeat; heartbeats and answers may be lost, repeated or late; members restart, and
are removed after their rebalance time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import permutations, product
from typing import Any, NamedTuple

from strandline.core.coordinator.machine import Batch, Context, Key, Record, TopicEntry
from strandline.core.errors import Refusal
from strandline.core.groups import records
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.heartbeats import HeartbeatParts, fence, heartbeat, release
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings, HeartbeatAnswered
from strandline.core.groups.targets import Subscriptions
from strandline.core.groups.timers import Timers
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.runtime.patterns import Re2Patterns
from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Interned

# ---- world
# A group of two members as values: its rows at the coordinator, and what each client reads and has sent.
#
# Invariant: a world is hashable and complete; two worlds that are equal have the same future.


GROUP = "g"
MEMBERS = ("m1", "m2")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
KEYS: tuple[Key, ...] = (
    records.GroupKey(GROUP),
    records.TargetEpochKey(GROUP),
    *(kind(GROUP, member) for member in MEMBERS for kind in (records.MemberKey, records.TargetKey, records.CurrentKey)),
)
"""All keys for which this group can have a row."""

Rows = tuple[object | None, ...]
"""The value of each key, in the order of `KEYS`."""
Set = frozenset[TopicPartition]


class Sent(NamedTuple):
    """A heartbeat."""

    epoch: int
    owned: Set | None


class MemberClient(NamedTuple):
    """The state of one member. It reads the partitions in ``reads``, and reports those in ``revoking`` until it has
    given them up."""

    epoch: int
    reads: Set
    revoking: Set = frozenset()
    out: Sent | None = None
    """The heartbeat that awaits its answer."""
    is_taken: bool = False
    """Whether a copy of that heartbeat was decided, and its answer lost."""
    late: Sent | None = None
    """An earlier heartbeat that is still in the network; no later one was taken."""


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
    """The group of these rows. Raises an AssertionError that names I28 if they contradict each other."""
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
    """The coordinator's decision on a heartbeat."""
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
    """Begin a change that no request caused."""
    return Changes(group_of(rows), 0)


def start() -> RebalanceWorld:
    """The first world: the first member has all partitions, the second has none."""
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
# Partitions are alike: a world and the one with exchanged partition numbers have the same future.

Exchange = dict[TopicPartition, TopicPartition]


def exchanges(moved: int) -> tuple[Exchange, ...]:
    """All permutations of the first ``moved`` partitions; the first one changes nothing."""
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


Step = tuple[str, RebalanceWorld]
_NONE: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceBounds:
    """How far a search goes."""

    epochs: int = 3
    """The highest group epoch."""
    restarts: int = 1
    """The number of restarts of members."""
    partitions: int = 3
    """The number of partitions that targets move; the others stay with the first member."""


class RebalanceBroken(AssertionError):
    """A world in which two members work on one partition."""


def check(world: RebalanceWorld) -> None:
    """I28 at the coordinator, and I32: no partition at two clients."""
    group_of(world.rows)
    first, second = ((client.reads | client.revoking) for client in world.clients)
    if both := first & second:
        raise RebalanceBroken(f"I32: both members hold {sorted(both)}")


def successors(world: RebalanceWorld, bounds: RebalanceBounds) -> Iterator[Step]:
    """Every possible step, with the world after it."""
    yield from _targets(world, bounds)
    for index, member in enumerate(MEMBERS):
        client = world.clients[index]
        if client.out is None:
            for sent in _heartbeats(client):
                yield f"{member} sends {_named(sent)}", _with(world, index, client._replace(out=sent))
        else:
            yield from _delivered(world, index, client)
            given_up = client._replace(out=None, is_taken=False, late=None if client.is_taken else client.out)
            yield f"{member} gives up waiting", _with(world, index, given_up)
        if client.late is not None:
            rows, _ = decided(world.rows, member, client.late)
            after = _with(world, index, client._replace(late=None))._replace(rows=rows)
            yield f"a late copy of {_named(client.late)} of {member} arrives", after
        if client.revoking:
            yield f"{member} is done with what it gives up", _with(world, index, client._replace(revoking=frozenset()))
        if world.restarts < bounds.restarts and client.epoch:
            again = MemberClient(0, frozenset(), late=client.late)
            yield f"{member} starts again", _with(world, index, again)._replace(restarts=world.restarts + 1)
        yield from _removed(world, index, bounds)


def _heartbeats(client: MemberClient) -> Iterator[Sent]:
    if client.epoch == 0:
        yield Sent(0, frozenset())
        return
    yield Sent(client.epoch, client.reads | client.revoking)
    yield Sent(client.epoch, None)


def _named(sent: Sent) -> str:
    owned = "nothing reported" if sent.owned is None else f"owned {sorted(tp.partition for tp in sent.owned)}"
    return f"a heartbeat in epoch {sent.epoch}, {owned}"


def _with(world: RebalanceWorld, index: int, client: MemberClient) -> RebalanceWorld:
    clients = (client, world.clients[1]) if index == 0 else (world.clients[0], client)
    return world._replace(clients=clients)


def _delivered(world: RebalanceWorld, index: int, client: MemberClient) -> Iterator[Step]:
    """The heartbeat arrives, and its answer arrives or is lost. A second copy is refused as late."""
    assert client.out is not None
    member, named = MEMBERS[index], _named(client.out)
    if client.is_taken:
        yield f"a copy of {named} of {member} is late", _with(world, index, client._replace(out=None, is_taken=False))
        return
    rows, answer = decided(world.rows, member, client.out)
    after = world._replace(rows=rows)
    # Everything sent before is late from here on.
    lost = client._replace(is_taken=True, late=None)
    yield f"{named} of {member} arrives, its answer is lost", _with(after, index, lost)
    answered = _answered(client._replace(out=None, late=None), answer)
    yield f"{named} of {member} is answered", _with(after, index, answered)


def _answered(client: MemberClient, answer: HeartbeatAnswered | Refusal) -> MemberClient:
    """What a client makes of an answer: it stops reading at once what is not assigned to it (G21)."""
    if isinstance(answer, Refusal):
        return client._replace(epoch=0, reads=frozenset(), revoking=frozenset())
    if answer.assignment is None:
        return client._replace(epoch=answer.member_epoch)
    reads = frozenset(answer.assignment)
    gone = (client.reads | client.revoking) - reads
    return client._replace(epoch=answer.member_epoch, reads=reads, revoking=gone)


def _targets(world: RebalanceWorld, bounds: RebalanceBounds) -> Iterator[Step]:
    """A new target: any division of the partitions, in the next epoch or in the one that a removal has begun."""
    group = group_of(world.rows)
    epoch = group.epoch if group.epoch > group.target_epoch else group.epoch + 1
    if epoch > bounds.epochs or not group.members:
        return
    moved, fixed = PARTITIONS[: bounds.partitions], PARTITIONS[bounds.partitions :]
    members = sorted(group.members)
    for owners in product(members, repeat=len(moved)):
        rows = []
        for member in members:
            mine = tuple(tp for tp, owner in zip(moved, owners, strict=True) if owner == member)
            mine += fixed if member == members[0] else ()
            rows.append(Record(records.TargetKey(GROUP, member), records.TargetValue(epoch, tuple(sorted(mine)))))
        last = Record(records.TargetEpochKey(GROUP), records.TargetEpochValue(epoch, "uniform", 0))
        batch = (*rows, Record(records.GroupKey(GROUP), records.GroupValue(epoch)), last)
        yield f"target {epoch}: {' '.join(owners)}", world._replace(rows=with_batch(world.rows, batch))


def _removed(world: RebalanceWorld, index: int, bounds: RebalanceBounds) -> Iterator[Step]:
    """The rebalance time-out of a member ends; and later its lease, and with that its hold on its partitions (G21)."""
    member, group = MEMBERS[index], group_of(world.rows)
    row = group.current.get(member)
    if row is None or not (row.state is records.MemberState.UNREVOKED or group.is_fenced(member)):
        return
    changes = changes_of(world.rows)
    if row.state is records.MemberState.UNREVOKED:
        if group.epoch < bounds.epochs:
            fence(changes, member)
            yield f"{member} does not give up in time", world._replace(rows=with_batch(world.rows, changes.batch()))
        return
    release(changes, member)
    ended = world.clients[index]._replace(epoch=0, reads=frozenset(), revoking=frozenset())
    after = _with(world, index, ended)._replace(rows=with_batch(world.rows, changes.batch()))
    yield f"the lease of {member} ends", after


# ---- search
# The search of rebalances: a world is one small integer made of the numbers of its rows and of its clients.
#
# Worlds that differ only in which partition is which are one (`symmetry`).

Result = breadth_first.Result[RebalanceWorld, str]
"""What a search found; a step is its name."""

_BITS = 24
_MASK = (1 << _BITS) - 1


def search(bounds: RebalanceBounds, **limits: Any) -> Result:
    """Search until I28 is broken, or nothing is left (`breadth_first.search`)."""
    return breadth_first.search(_Rebalances(bounds), **limits)


class _Rebalances(breadth_first.Model[RebalanceWorld, str, int]):
    """Worlds as integers."""

    def __init__(self, bounds: RebalanceBounds) -> None:
        self.bounds: RebalanceBounds = bounds
        ways = exchanges(bounds.partitions)
        self._rows: Interned[Any] = Interned()
        self._clients: Interned[Any] = Interned()
        self._forms_of_rows = cache(partial(self._forms, self._rows, [partial(exchanged_rows, how=w) for w in ways]))
        self._forms_of_client = cache(
            partial(self._forms, self._clients, [partial(exchanged_client, how=w) for w in ways])
        )

    @staticmethod
    def _forms(numbers: Interned[Any], ways: list[Any], value: Any) -> tuple[int, ...]:
        """The numbers of a value, exchanged in every way."""
        return tuple(numbers.id_of(way(value)) for way in ways)

    def start(self) -> RebalanceWorld:
        return start()

    def successors(self, world: RebalanceWorld) -> Iterator[tuple[str, RebalanceWorld]]:
        return successors(world, self.bounds)

    def key(self, world: RebalanceWorld) -> int:
        """One integer for a world and for all worlds that differ in which partition is which."""
        forms = zip(self._forms_of_rows(world.rows), *map(self._forms_of_client, world.clients), strict=True)
        rows, one, other = min(forms)
        found: int = ((world.restarts << _BITS | rows) << _BITS | one) << _BITS | other
        return found

    def world(self, key: int) -> RebalanceWorld:
        clients = self._clients.values
        one, other = clients[key >> _BITS & _MASK], clients[key & _MASK]
        return RebalanceWorld(self._rows.values[key >> 2 * _BITS & _MASK], (one, other), key >> 3 * _BITS)

    def check(self, world: RebalanceWorld) -> None:
        """I28 in one world."""
        check(world)
