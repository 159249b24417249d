"""Decides which replicas move: repairs what breaks a goal, then balances with the fewest moves (C90, C91).

Invariant: a plan is refused before it has a move. A partition whose copies in sync are all on nodes that are away is
never moved: there is nothing to copy from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from strandline.core.planning.evening import LeaderFlow, ReplicaFlow, even, even_bytes
from strandline.core.planning.layout import Band, Layout
from strandline.core.planning.values import Goal, Move, Plan, PlannedNode, PlannedPartition, names

EVERY_GOAL = frozenset(Goal)


def plan(
    nodes: Iterable[PlannedNode],
    partitions: Iterable[PlannedPartition],
    goals: Collection[Goal] = EVERY_GOAL,
) -> Plan:
    """The moves that reach these goals and the wanted replication factors."""
    layout = Layout(nodes, partitions)
    before = [tuple(replicas) for replicas in layout.replicas]
    if refusals := _refusals_of(layout, goals):
        return Plan(refusals=refusals)
    # In the order of the goals: each step keeps what the steps before it have reached (C90).
    _repair(layout, goals)
    if Goal.RACKS in goals:
        _repair_racks(layout)
    if Goal.REPLICAS in goals:
        even(ReplicaFlow(layout))
    if Goal.LEADERS in goals:
        # Another order of the same replicas copies nothing, so it comes before exchanges of replicas, which only a plan
        # that may move replicas makes (C90).
        even(LeaderFlow(layout, may_copy=False))
        if Goal.REPLICAS in goals:
            even(LeaderFlow(layout, may_copy=True))
    if Goal.BYTES in goals and layout.are_sizes_known:
        even_bytes(layout)
    return Plan(moves=_moves(layout, before), remaining=_remaining_of(layout, goals))


def replace(nodes: Iterable[PlannedNode], partitions: Iterable[PlannedPartition], old: int, new: int) -> Plan:
    """Puts ``new`` in the place of ``old`` in every partition, in the same order, and moves nothing else (C87)."""
    layout = Layout(nodes, partitions)
    before = [tuple(replicas) for replicas in layout.replicas]
    if refusals := _replace_refusals(layout, old, new):
        return Plan(refusals=refusals)
    for _, index in list(layout.held[old]):
        replicas = [new if node_id == old else node_id for node_id in layout.replicas[index]]
        layout.put(index, replicas, f"node {new} replaces node {old}")
    return Plan(moves=_moves(layout, before), remaining=_remaining_of(layout, ()))


def _repair(layout: Layout, goals: Collection[Goal]) -> None:
    """Empty the draining nodes, and give every partition its wanted number of replicas."""
    for index, partition in enumerate(layout.partitions):
        replicas, wanted = layout.replicas[index], layout.wanted_factor(index)
        leaving = layout.leaving(index, goals)
        why = [f"node {node_id} is drained" for node_id in leaving]
        why += [f"replication factor {len(replicas)} to {wanted}"] if wanted != len(replicas) else []
        places = [None if node_id in leaving else node_id for node_id in replicas]
        while len(places) > wanted:
            # A lower factor first ends replicas that leave a drained node anyway: nothing has to replace them then.
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


# ---- verdicts
# Says why a plan cannot be made, and which goals it leaves unmet, with names (C86, C92).
#
# Invariant: a refusal names the partitions or nodes, and what to do first.


def _refusals_of(layout: Layout, goals: Collection[Goal]) -> tuple[str, ...]:
    """Why the partitions that must change cannot."""
    if not layout.takers:
        return ("no node can take a replica: each is away, draining or nearly full; start or add a node",)
    return _grouped(
        (partition.name, _no_copy(layout, index) or _no_room(layout, index, leaving))
        for index, partition in enumerate(layout.partitions)
        if (leaving := layout.leaving(index, goals)) or layout.wanted_factor(index) > len(partition.replicas)
    )


def _replace_refusals(layout: Layout, old: int, new: int) -> tuple[str, ...]:
    """Why one node cannot take the place of another."""
    if unknown := [node_id for node_id in (old, new) if node_id not in layout.nodes]:
        return (unknown_node(unknown[0]),)
    if old == new:
        return (f"node {old} cannot replace itself; name the node that takes its place",)
    if new not in layout.takers:
        return (f"node {new} cannot take replicas: it is away, draining or nearly full; start it, or name another",)
    held = [index for _, index in layout.held[old]]
    both = [layout.partitions[index].name for index in held if new in layout.replicas[index]]
    if both:
        return (f"{names(both)}: node {new} holds a replica already; use `strandline node drain {old}` instead",)
    return _grouped((layout.partitions[index].name, _no_copy(layout, index)) for index in held)


def unknown_node(node_id: int) -> str:
    """Why a node that holds no replicas and may hold none is refused."""
    return f"node {node_id} is not registered, or an observer; `strandline node list` shows the nodes"


def _grouped(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    by_reason: dict[str, list[str]] = {}
    for name, why in found:
        if why:
            by_reason.setdefault(why, []).append(name)
    return tuple(f"{names(partitions)}: {why}" for why, partitions in by_reason.items())


def _no_copy(layout: Layout, index: int) -> str:
    if index not in layout.pinned:
        return ""
    in_sync = layout.partitions[index].in_sync
    if len(in_sync) == 1:
        return f"only copy on node {in_sync[0]}, which is away; start that node again, or delete the topic"
    return f"no copy in sync on a node that is there; start one of the nodes {_ids(in_sync)} again"


def _no_room(layout: Layout, index: int, leaving: Collection[int]) -> str:
    kept = [node_id for node_id in layout.replicas[index] if node_id not in leaving]
    wanted = layout.wanted_factor(index)
    return no_room(wanted, kept, layout.takers, layout.racks, layout.rack_limit(wanted))


def no_room(
    wanted: int, kept: Iterable[int], takers: Iterable[int], racks_of: Mapping[int, str | None], limit: int
) -> str:
    """Why a partition cannot have ``wanted`` replicas on the nodes that keep one and on those that may take one."""
    holders = sorted({*kept, *takers})
    if len(holders) < wanted:
        return (f"{wanted} replicas need as many nodes, and {len(holders)} can hold them ({_ids(holders)}); add nodes, "
                f"start those that are away, or lower the replication factor")  # fmt: skip
    crowd, now = (Counter(racks_of.get(node_id) for node_id in nodes) for nodes in (holders, kept))
    alone = crowd.pop(None, 0)
    # What a rack holds already may stay, even if it is more than the limit.
    racks = {rack: max(now[rack], min(limit, count)) for rack, count in crowd.items()}
    room = sum(racks.values())
    if room + alone < wanted:
        return (f"{wanted} replicas in {len(racks)} racks are at most {limit} in each, and the racks have nodes for "
                f"{room}; add nodes to the smaller racks, or lower the replication factor")  # fmt: skip
    return ""


def _remaining_of(layout: Layout, goals: Collection[Goal]) -> tuple[str, ...]:
    """What is wrong with drained nodes and racks, and of the other goals those that the plan was for."""
    drained = [f"node {node_id}" for node_id, node in layout.nodes.items() if node.draining and layout.held[node_id]]
    crowded = [each.name for index, each in enumerate(layout.partitions) if layout.crowded_rack(index)]
    stored = _outside(layout.byte_bands(), layout.bytes.__getitem__)
    unmet = {
        Goal.DRAINED: ("draining nodes hold replicas", drained),
        Goal.RACKS: ("a rack holds too many replicas", crowded),
        Goal.REPLICAS: ("replicas more than 1 from the share", _outside(layout.bands(layout.count), layout.count)),
        Goal.LEADERS: ("first replicas more than 1 from the share", _outside(layout.bands(layout.leads), layout.leads)),
        Goal.BYTES: ("bytes more than 10 % from the share", stored),
    }
    said = [
        f"{what}: {names(where)}" + (f" ({_WHY})" if goal in goals else "")
        for goal, (what, where) in unmet.items()
        if where and (goal in goals or goal <= Goal.RACKS)
    ]
    if Goal.BYTES in goals and not layout.are_sizes_known:
        said.append("bytes are not evened out: not every partition's size is known")
    return tuple(said)


_WHY = "no move or exchange improves that without breaking an earlier goal"


def _outside(bands: Mapping[int, Band], load: Callable[[int], int]) -> list[str]:
    """The nodes outside their bands, with what they have and their share."""
    return [f"node {node_id} has {load(node_id):,}, share {band.share:,.0f}" for node_id, band in bands.items()
            if not band.low <= load(node_id) <= band.high]  # fmt: skip


def _ids(node_ids: Iterable[int]) -> str:
    return ", ".join(map(str, node_ids)) or "none"
