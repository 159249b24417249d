"""Partitions are alike: a world and the one in which they have exchanged their numbers have the same future."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from strandline.core.groups.records import AssignedPartition, CurrentValue, TargetValue
from strandline.core.types import TopicPartition
from strandline.sim.rebalances.world import PARTITIONS, Client, Rows, Sent

Exchange = dict[TopicPartition, TopicPartition]


def exchanges(moved: int) -> tuple[Exchange, ...]:
    """All ways to exchange the first ``moved`` partitions; the first way leaves them."""
    fixed = {tp: tp for tp in PARTITIONS[moved:]}
    return tuple(fixed | dict(zip(PARTITIONS, order, strict=False)) for order in permutations(PARTITIONS[:moved]))


def exchanged_rows(rows: Rows, how: Exchange) -> Rows:
    """The rows with their partitions exchanged."""
    return tuple(_value(value, how) for value in rows)


def _value(value: object, how: Exchange) -> object:
    if isinstance(value, TargetValue):
        return replace(value, partitions=tuple(sorted(how[tp] for tp in value.partitions)))
    if isinstance(value, CurrentValue):
        return replace(value, assigned=_assigned(value.assigned, how), revoking=_assigned(value.revoking, how))
    return value


def _assigned(held: tuple[AssignedPartition, ...], how: Exchange) -> tuple[AssignedPartition, ...]:
    return tuple(sorted(AssignedPartition(how[tp], epoch) for tp, epoch in held))


def exchanged_client(client: Client, how: Exchange) -> Client:
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
