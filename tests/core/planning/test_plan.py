"""What a plan moves, why, what it refuses, and that it moves as little as it can."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace as changed

import pytest
from hypothesis import given, settings, strategies as st

from strandline.core.planning.plan import plan, replace
from strandline.core.planning.values import Goal, Plan, PlannedNode, PlannedPartition

COPIES = frozenset({Goal.DRAINED, Goal.RACKS, Goal.REPLICAS})


def node(node_id: int, **given: object) -> PlannedNode:
    """A node that takes replicas."""
    return PlannedNode(node_id=node_id, **given)  # type: ignore[arg-type]


def part(index: int, *replicas: int, **given: object) -> PlannedPartition:
    """A partition of `orders` with every replica in sync."""
    base: dict[str, object] = {"topic": "orders", "partition": index, "replicas": replicas, "in_sync": replicas}
    return PlannedPartition(**(base | given))  # type: ignore[arg-type]


def after(partitions: Iterable[PlannedPartition], made: Plan) -> list[PlannedPartition]:
    """The partitions once every move has ended."""
    moved = {(move.topic, move.partition): move.after for move in made.moves}
    return [
        changed(each, replicas=(now := moved.get((each.topic, each.partition), each.replicas)), in_sync=now)
        for each in partitions
    ]


def copies(made: Plan) -> int:
    return sum(len(move.adding) for move in made.moves)


def spread(nodes: int, partitions: int, factor: int) -> list[PlannedPartition]:
    """Partitions of equal size in a ring of nodes."""
    return [
        part(index, *((index + place) % nodes for place in range(factor)), size_bytes=1) for index in range(partitions)
    ]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[PlannedNode], list[PlannedPartition]]:
    """Small clusters in any disorder."""
    racks = draw(st.sampled_from([0, 0, 2, 3]))
    ids = range(draw(st.integers(3, 5)))
    nodes = [
        node(
            each,
            rack=f"r{draw(st.integers(0, racks - 1))}" if racks else None,
            draining=draw(st.integers(0, 6)) == 0,
            weight=draw(st.sampled_from([1, 1, 2])),
        )
        for each in ids
    ]
    held = draw(st.lists(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True), min_size=1, max_size=4))
    sizes = st.none() if draw(st.booleans()) else st.integers(0, 100)
    return nodes, [part(index, *each, size_bytes=draw(sizes)) for index, each in enumerate(held)]


def fewest_copies(nodes: Sequence[PlannedNode], partitions: Sequence[PlannedPartition]) -> int | None:
    """How many copies meet the first three goals, by trying every assignment; None: no number does."""
    weights = {each.node_id: each.weight for each in nodes if not each.draining}
    racks = {each.node_id: each.rack for each in nodes}
    number = len({racks[each] for each in weights if racks[each]}) or 1
    total = sum(len(each.replicas) for each in partitions)
    options = [
        [
            (len(set(chosen) - set(each.replicas)), chosen)
            for chosen in itertools.combinations(weights, len(each.replicas))
            if max(Counter(racks[n] for n in chosen if racks[n]).values(), default=0) <= math.ceil(len(chosen) / number)
        ]
        for each in partitions
    ]
    found = []
    for choice in itertools.product(*options):
        held = Counter(each for _, chosen in choice for each in chosen)
        share = total / sum(weights.values()) if weights else 0
        if all(abs(held[each] - share * own) <= 1 + 1e-9 for each, own in weights.items()):
            found.append(sum(count for count, _ in choice))
    return min(found, default=None)


@given(clusters())
@settings(deadline=None)
def test_goals_are_met_whenever_they_can_be_with_hardly_more_copies_than_needed(
    cluster: tuple[list[PlannedNode], list[PlannedPartition]],
) -> None:
    """Beside a search of every assignment a plan reaches the goals of replicas, and copies at most one replica more."""
    nodes, partitions = cluster
    made = plan(nodes, partitions, COPIES)
    fewest = fewest_copies(nodes, partitions)

    if fewest is not None:
        assert not made.refusals
        assert not [each for each in made.remaining if "no move or exchange" in each]
        assert copies(made) <= fewest + 1


@given(clusters(), st.randoms())
@settings(deadline=None)
def test_every_plan_keeps_the_rules_of_placement(
    cluster: tuple[list[PlannedNode], list[PlannedPartition]], order: object
) -> None:
    """All goals together: as many replicas as before, on different nodes, none on a draining one; the same input in
    another order gives the same plan; what follows a plan has nothing left to copy."""
    nodes, partitions = cluster
    made = plan(nodes, partitions)
    order.shuffle(partitions)  # type: ignore[attr-defined]
    again = plan(reversed(nodes), partitions)
    draining = {each.node_id for each in nodes if each.draining}

    assert again == made
    for move in made.moves:
        assert len(set(move.after)) == len(move.before)
        assert draining.isdisjoint(move.after)
        assert move.reasons
    if not made.refusals and not made.remaining:
        assert plan(nodes, after(partitions, made)) == Plan()


@given(st.integers(3, 8), st.integers(1, 60), st.integers(1, 3))
@settings(deadline=None)
def test_a_new_node_costs_no_more_than_its_share(nodes: int, partitions: int, factor: int) -> None:
    """Adding one node to N balanced ones copies at most ceil(replicas / (N + 1)), and then nothing more."""
    ids = [node(each) for each in range(nodes + 1)]
    ring = spread(nodes, partitions, factor)
    held = after(ring, plan(ids[:nodes], ring))
    made = plan(ids, held)

    assert copies(made) <= math.ceil(partitions * factor / (nodes + 1))
    assert copies(plan(ids, after(held, made))) == 0


@given(st.integers(4, 8), st.lists(st.integers(0, 10**6), min_size=20, max_size=60), st.booleans())
@settings(deadline=None)
def test_copies_stay_near_the_counted_lower_bound(nodes: int, seeds: list[int], drained: bool) -> None:
    """Without racks a disordered cluster costs at most 1.2 times what must leave full and draining nodes, or must
    reach empty ones."""
    held = []
    for index, seed in enumerate(seeds):
        pool = list(range(nodes))
        held.append(part(index, *(pool.pop((seed + place * 7) % len(pool)) for place in range(3))))
    ids = [node(each, draining=drained and each == 0) for each in range(nodes)]
    counts = Counter(each for partition in held for each in partition.replicas)
    members = [each.node_id for each in ids if not each.draining]
    share = 3 * len(held) / len(members)
    surplus = sum(max(0, counts[each] - math.floor(share + 1 + 1e-9)) for each in members)
    lack = sum(max(0, math.ceil(share - 1 - 1e-9) - counts[each]) for each in members)
    bound = max(surplus + sum(counts[each.node_id] for each in ids if each.draining), lack)
    made = plan(ids, held, COPIES)

    assert not [each for each in made.remaining if "no move or exchange" in each]
    assert copies(made) <= 1.2 * bound


def test_a_balanced_cluster_gives_an_empty_plan() -> None:
    """Where every goal is met nothing moves and nothing is left unmet."""
    assert plan([node(each) for each in range(4)], spread(4, 12, 3)) == Plan()


def test_racks_are_repaired_with_one_copy_each() -> None:
    """Two replicas in one rack of three: the one that is not first goes to the rack that has none."""
    nodes = [node(each, rack=f"r{each % 3}") for each in range(6)]
    made = plan(nodes, [part(0, 0, 3, 1)], COPIES)

    assert [move.after for move in made.moves] == [(0, 2, 1)]
    assert made.moves[0].reasons == ("rack r0 held 2 of 3 replicas, 1 at most",)


def test_orders_change_before_anything_is_copied_for_leaders() -> None:
    """Node 0 is first everywhere: other orders of the same replicas even that out, chains of them included."""
    held = [part(index, 0, index % 2 + 1) for index in range(9)]
    made = plan([node(each) for each in range(3)], held, {Goal.LEADERS})
    firsts = Counter(each.replicas[0] for each in after(held, made))

    assert copies(made) == 0
    assert max(firsts.values()) - min(firsts.values()) <= 2
    assert not [each for each in made.remaining if "first replicas" in each]


def test_replicas_change_places_where_orders_are_not_enough_for_leaders() -> None:
    """Replicas are even and each first one is alone: firsts are evened out by exchanges that keep the numbers."""
    alone = [part(index, 0) for index in range(8)]
    nodes = [node(each) for each in range(3)]
    held = [*alone, *(part(8 + index, 1, 2) for index in range(8))]
    made = plan(nodes, held, COPIES | {Goal.LEADERS})
    counts = Counter(each for partition in after(held, made) for each in partition.replicas)

    assert max(counts.values()) - min(counts.values()) <= 2
    assert not [each for each in made.remaining if "first replicas" in each]


def test_bytes_are_evened_out_without_breaking_the_numbers() -> None:
    """Large partitions of one node change places with small ones; numbers of replicas and firsts stay within 1."""
    held = [part(index, index % 2, size_bytes=90 if index % 2 else 10) for index in range(20)]
    made = plan([node(0), node(1)], held)
    stored = Counter({0: 0})
    for each in after(held, made):
        stored[each.replicas[0]] += each.size_bytes or 0

    assert made.remaining == ()
    assert 0.9 * 500 <= stored[0] <= 1.1 * 500
    assert "% of its share of bytes" in made.moves[0].reasons[0]


def test_a_drain_moves_what_the_node_holds_and_nothing_else() -> None:
    """Only partitions of the drained node change, at the place in the order that it had."""
    nodes = [node(each, draining=each == 3) for each in range(4)]
    held = spread(4, 8, 3)
    made = plan(nodes, held, {Goal.DRAINED})

    assert {move.partition for move in made.moves} == {each.partition for each in held if 3 in each.replicas}
    for move in made.moves:
        assert (set(move.before) - set(move.after), len(move.adding)) == ({3}, 1)
        assert move.after.index(move.adding[0]) == move.before.index(3)
        assert move.reasons == ("node 3 is drained",)


@pytest.mark.parametrize(
    ("nodes", "partition", "said"),
    [
        ([node(0), node(1), node(3, draining=True)], part(0, 0, 1, 3), "3 replicas need as many nodes, and 2 can hold"),
        ([node(0), node(1), node(3, draining=True, away=True)], part(0, 3), "only copy on node 3, which is away"),
        ([node(0), node(3, draining=True), node(4, full=True)], part(0, 0, 3), "and 1 can hold them (0)"),
        (
            [node(0, rack="a"), node(1, rack="a"), node(2, rack="a"), node(3, draining=True), node(4, rack="b")],
            part(0, 0, 1, 4, 3),
            "4 replicas in 2 racks are at most 2 in each",
        ),
        ([node(3, draining=True)], part(0, 3), "no node can take a replica"),
    ],
)
def test_a_drain_that_cannot_end_is_refused_first(
    nodes: list[PlannedNode], partition: PlannedPartition, said: str
) -> None:
    """Too few nodes or racks, a full disk, and the only copy on a dead node: the refusal names them, nothing moves."""
    made = plan(nodes, [partition, part(1, 0)], {Goal.DRAINED})

    assert made.moves == ()
    assert said in made.refusals[0]


@pytest.mark.parametrize(("factor", "expected"), [(3, (0, 2, 1)), (1, (0,))])
def test_a_replication_factor_grows_and_shrinks(factor: int, expected: tuple[int, ...]) -> None:
    """New replicas go to the emptiest nodes; the first replica stays, and replicas out of sync go before others."""
    held = [part(0, 0, 2, in_sync=(0,), replication_factor=factor)]
    made = plan([node(each) for each in range(3)], held, ())

    assert made.moves[0].after == expected
    assert made.moves[0].reasons == (f"replication factor 2 to {factor}",)


def test_a_shrink_removes_the_replica_that_is_out_of_sync() -> None:
    """A lower replication factor costs no copy that is in sync while another one is not."""
    (move,) = plan(
        [node(each) for each in range(3)], [part(0, 0, 1, 2, in_sync=(0, 2), replication_factor=2)], ()
    ).moves

    assert move.after == (0, 2)


def test_nodes_that_are_away_keep_what_they_have_and_get_nothing() -> None:
    """A node that may come back is neither emptied nor filled (C87); shares are those of the others."""
    nodes = [node(0), node(1), node(2, away=True), node(3)]
    held = [part(index, 0, 2) for index in range(6)]
    made = plan(nodes, held, COPIES)

    counts = Counter(each for partition in after(held, made) for each in partition.replicas)

    assert counts[2] == 6
    assert {counts[each] for each in (0, 1, 3)} <= {1, 2, 3}


def test_a_replaced_node_gives_its_places_in_their_order() -> None:
    """The new node is where the old one was, in every partition, and nothing else moves."""
    held = spread(3, 6, 2)
    made = replace([node(0, away=True), *map(node, (1, 2, 9))], held, 0, 9)

    assert [move.after for move in made.moves] == [
        tuple(9 if each == 0 else each for each in partition.replicas) for partition in held if 0 in partition.replicas
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0, 7, "node 7 is not registered"),
        (8, 9, "node 8 is not registered"),
        (0, 0, "cannot replace itself"),
        (1, 4, "node 4 cannot take replicas"),
        (1, 2, "orders-1: node 2 holds a replica already; use `strandline node drain 1` instead"),
        (3, 9, "orders-9: only copy on node 3, which is away"),
    ],
)
def test_a_replacement_that_cannot_be_is_refused(old: int, new: int, said: str) -> None:
    """Unknown nodes, a node that takes nothing, two replicas on one node, nothing to copy from: each by name."""
    nodes = [*map(node, (0, 1, 2, 9)), node(3, away=True), node(4, away=True)]
    made = replace(nodes, [part(0, 0, 1), part(1, 1, 2), part(9, 3)], old, new)

    assert made.moves == ()
    assert said in made.refusals[0]


def test_time_grows_little_faster_than_the_cluster() -> None:
    """Eight times the partitions, all on a third of the nodes, take less than forty times as long."""

    def seconds(partitions: int) -> float:
        began = time.process_time()
        made = plan([node(each) for each in range(30)], spread(10, partitions, 3))
        took = time.process_time() - began
        assert copies(made) > partitions
        return took

    assert seconds(1_600) < 40 * seconds(200)
