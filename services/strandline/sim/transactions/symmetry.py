"""The partitions are alike: a world and the one in which they have exchanged their numbers have the same future."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from strandline.sim.transactions.coordinator import Coordinator
from strandline.sim.transactions.partition import TPS
from strandline.sim.transactions.world import Late, LateEnd, World


def exchanged(world: World) -> World:
    """The world with its partitions exchanged."""
    first, second = world.partitions
    one, other = world.client.sending
    return world._replace(
        coordinator=_coordinator(world.coordinator),
        partitions=(second, first),
        client=world.client._replace(sending=(other, one)),
        late=_late(world.late),
    )


@cache
def _coordinator(coordinator: Coordinator) -> Coordinator:
    partitions = tuple(sorted(TPS[1 - tp.partition] for tp in coordinator.row.partitions))
    done = frozenset(1 - partition for partition in coordinator.done)
    return coordinator._replace(row=replace(coordinator.row, partitions=partitions), done=done)


@cache
def _late(late: frozenset[Late]) -> frozenset[Late]:
    return frozenset(
        each if isinstance(each, LateEnd) else replace(each, partition=1 - each.partition) for each in late
    )
