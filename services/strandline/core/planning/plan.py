"""Decides which replicas move: repairs what breaks a goal, then balances with the fewest moves (C90, C91).

Invariant: a plan is refused before it has a move. A partition whose copies in sync are all on nodes that are away is
never moved: there is nothing to copy from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from strandline.core.planning.evening import LeaderFlow, ReplicaFlow, even, even_bytes
from strandline.core.planning.layout import Layout
from strandline.core.planning.values import Goal, Move, Plan, PlannedNode, PlannedPartition
from strandline.core.planning.verdicts import refusals_of, remaining_of, replace_refusals, unknown_node

__all__ = ["EVERY_GOAL", "plan", "replace", "unknown_node"]

EVERY_GOAL = frozenset(Goal)


def plan(
    nodes: Iterable[PlannedNode],
    partitions: Iterable[PlannedPartition],
    goals: Collection[Goal] = EVERY_GOAL,
) -> Plan:
    """The moves that reach these goals and the wanted replication factors.

    `Goal.LEADERS` without `Goal.REPLICAS` changes the order of replicas only.
    """
    layout = Layout(nodes, partitions)
    before = [tuple(replicas) for replicas in layout.replicas]
    if refusals := refusals_of(layout, goals):
        return Plan(refusals=refusals)
    _repair(layout, goals)
    if Goal.RACKS in goals:
        _repair_racks(layout)
    if Goal.REPLICAS in goals:
        even(ReplicaFlow(layout))
    if Goal.LEADERS in goals:
        even(LeaderFlow(layout, may_copy=False))
        if Goal.REPLICAS in goals:
            even(LeaderFlow(layout, may_copy=True))
    if Goal.BYTES in goals and layout.are_sizes_known:
        even_bytes(layout)
    return Plan(moves=_moves(layout, before), remaining=remaining_of(layout, goals))


def replace(nodes: Iterable[PlannedNode], partitions: Iterable[PlannedPartition], old: int, new: int) -> Plan:
    """Puts ``new`` in the place of ``old`` in every partition, in the same order, and moves nothing else (C87)."""
    layout = Layout(nodes, partitions)
    before = [tuple(replicas) for replicas in layout.replicas]
    if refusals := replace_refusals(layout, old, new):
        return Plan(refusals=refusals)
    for _, index in list(layout.held[old]):
        replicas = [new if node_id == old else node_id for node_id in layout.replicas[index]]
        layout.put(index, replicas, f"node {new} replaces node {old}")
    return Plan(moves=_moves(layout, before), remaining=remaining_of(layout, ()))


def _repair(layout: Layout, goals: Collection[Goal]) -> None:
    """Empty the draining nodes, and give every partition its wanted number of replicas."""
    for index, partition in enumerate(layout.partitions):
        replicas, wanted = layout.replicas[index], layout.wanted_factor(index)
        leaving = layout.leaving(index, goals)
        why = [f"node {node_id} is drained" for node_id in leaving]
        why += [f"replication factor {len(replicas)} to {wanted}"] if wanted != len(replicas) else []
        places = [None if node_id in leaving else node_id for node_id in replicas]
        while len(places) > wanted:
            places.remove(None if None in places else _least_missed(layout, places, partition.in_sync))
        if why:
            layout.put(index, _filled(layout, [*places, *[None] * (wanted - len(places))]), *why)


def _least_missed(layout: Layout, places: Sequence[int | None], in_sync: Collection[int]) -> int:
    """The replica that a lower replication factor ends: never the first, one out of sync before others."""
    others = [node_id for node_id in places[1:] if node_id is not None]
    return max(others, key=lambda node_id: (node_id not in in_sync, layout.crowd(places, layout.racks[node_id]),
                                            layout.surplus(node_id), node_id))  # fmt: skip


def _filled(layout: Layout, places: list[int | None]) -> list[int]:
    """The replicas with every empty place taken by the node that lacks most."""
    limit = layout.rack_limit(len(places))
    for place, node_id in enumerate(places):
        if node_id is None:
            free = [each for each in layout.takers
                    if each not in places and layout.crowd(places, layout.racks[each]) < limit]  # fmt: skip
            places[place] = min(free, key=lambda each: (layout.surplus(each), layout.bytes[each], each))
    return [node_id for node_id in places if node_id is not None]


def _repair_racks(layout: Layout) -> None:
    """Move replicas out of crowded racks, where another has a node for them."""
    for index in range(len(layout.partitions)):
        while rack := layout.crowded_rack(index):
            replicas = layout.replicas[index]
            ways = [(source, target) for source in layout.members if layout.racks[source] == rack and source in replicas
                    for target in layout.takers if layout.racks[target] != rack
                    and layout.may_move(index, source, target)]  # fmt: skip
            if not ways:
                break
            gain = {way: layout.surplus(way[0]) - layout.surplus(way[1]) for way in ways}
            # The preferred leader stays if another can go.
            source, target = min(ways, key=lambda way: (way[0] == replicas[0], -gain[way], way))
            crowd, limit = layout.crowd(replicas, rack), layout.rack_limit(len(replicas))
            layout.move(index, source, target, f"rack {rack} held {crowd} of {len(replicas)} replicas, {limit} at most")


def _moves(layout: Layout, before: Sequence[tuple[int, ...]]) -> tuple[Move, ...]:
    return tuple(
        Move(
            topic=layout.partitions[index].topic,
            partition=layout.partitions[index].partition,
            before=before[index],
            after=tuple(layout.replicas[index]),
            size_bytes=layout.partitions[index].size_bytes,
            reasons=tuple(reasons),
        )
        for index, reasons in layout.reasons.items()
        if tuple(layout.replicas[index]) != before[index]
    )
