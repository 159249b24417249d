"""What can happen next in a world of rebalances, and what must hold in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

from strandline.core.coordinator.machine import Record
from strandline.core.errors import Refusal
from strandline.core.groups import records
from strandline.core.groups.heartbeats import fence, release
from strandline.core.groups.messages import HeartbeatAnswered
from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.rebalances.world import (
    GROUP,
    MEMBERS,
    PARTITIONS,
    MemberClient,
    RebalanceWorld,
    Sent,
    changes_of,
    decided,
    exchanged_client,
    exchanged_rows,
    exchanges,
    group_of,
    start,
    with_batch,
)

Step = tuple[str, RebalanceWorld]
_NONE: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceBounds:
    """How far a search goes."""

    epochs: int = 3
    """The highest group epoch."""
    restarts: int = 1
    """How often a member starts again."""
    partitions: int = 3
    """How many of the partitions targets move; the others stay with the first member."""


class RebalanceBroken(AssertionError):
    """A world in which two members work on one partition."""


def check(world: RebalanceWorld) -> None:
    """I28 at the coordinator, and I32: no partition at two clients."""
    group_of(world.rows)
    first, second = ((client.reads | client.revoking) for client in world.clients)
    if both := first & second:
        raise RebalanceBroken(f"I32: both members hold {sorted(both)}")


def successors(world: RebalanceWorld, bounds: RebalanceBounds) -> Iterator[Step]:
    """Every step that can follow, with the world after it."""
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
    """The heartbeat arrives, and its answer does or is lost. A second copy is answered that it is late."""
    assert client.out is not None
    member, named = MEMBERS[index], _named(client.out)
    if client.is_taken:
        yield f"a copy of {named} of {member} is late", _with(world, index, client._replace(out=None, is_taken=False))
        return
    rows, answer = decided(world.rows, member, client.out)
    after = world._replace(rows=rows)
    # Whatever was sent before is late from here on.
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
        key: int = ((world.restarts << _BITS | rows) << _BITS | one) << _BITS | other
        return key

    def world(self, key: int) -> RebalanceWorld:
        clients = self._clients.values
        one, other = clients[key >> _BITS & _MASK], clients[key & _MASK]
        return RebalanceWorld(self._rows.values[key >> 2 * _BITS & _MASK], (one, other), key >> 3 * _BITS)

    def check(self, world: RebalanceWorld) -> None:
        """I28 in one world."""
        check(world)
